"""Flip-flop language (arXiv 2306.00946): recall the last bit written, however long ago."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, check_types, documented, fractions
from feedback_transformer.data.episodes import NO_LABEL, Episodes
from feedback_transformer.tasks.task import EpisodeTask, derive_seed, generator, label_accuracy

WRITE, READ, IGNORE = 2, 3, 4  # after the two bits
TESTS = {"sparse": 0.98, "dense": 0.1}  # how often the instruction is to ignore


@dataclass(frozen=True)
class FlipFlop(EpisodeTask):
    """Instructions, each followed by a bit: write it, ignore it, or read, which must give the last bit written.

        input    write  1  ignore  0  ignore  0  read  1
        label      -    -    -     -    -     -    1   -

    The first instruction is `write`, the last `read`; of the others a fraction `ignore` is `ignore`, and the rest is
    half `write`, half `read`. Only the bits read are asked for. Scored on two other distributions, `sparse` (98%
    `ignore`: the bit is far back) and `dense` (10%: it changes often); both are the fraction of bits that are right.
    """

    length: int = documented(512, "symbols in an episode; an instruction and its bit are two")
    ignore: float = documented(0.8, "the fraction of `ignore` instructions")

    def __post_init__(self) -> None:
        check_types(self)
        if self.length < 4 or self.length % 2:
            raise ConfigError(f"FlipFlop.length = {self.length} must be even, and 4 or more")
        fractions(self, "ignore")

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("0", "1", "write", "read", "ignore")

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("0", "1")

    @property
    def metric(self) -> str:
        return "sparse"

    def episodes(self, count: int, seed: int) -> Episodes:
        random, pairs = generator(seed), self.length // 2
        rest = (1 - self.ignore) / 2
        chance = random.random((count, pairs))
        instructions = np.select([chance < rest, chance < 2 * rest], [WRITE, READ], IGNORE)
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        bits = random.integers(0, 2, size=(count, pairs))
        written = np.maximum.accumulate(np.where(instructions == WRITE, np.arange(pairs), 0), axis=1)
        reads = instructions == READ
        bits = np.where(reads, np.take_along_axis(bits, written, axis=1), bits)
        tokens = np.stack([instructions, bits], axis=2)
        labels = np.stack([np.where(reads, bits, NO_LABEL), np.full_like(bits, NO_LABEL)], axis=2)
        return Episodes(tokens.ravel(), labels.ravel(), np.arange(count) * self.length)

    def held_out(self) -> FlipFlop:
        return replace(self, ignore=TESTS["sparse"])  # whatever it was trained on

    def evaluation(self, split: str, count: int, seed: int) -> dict[str, Episodes]:  # type: ignore[override]
        own = derive_seed(seed, split)
        return {name: replace(self, ignore=ignore).episodes(count, own) for name, ignore in TESTS.items()}

    def score(self, model: nn.Module, data: dict[str, Episodes], device: torch.device) -> dict[str, float]:
        return {name: label_accuracy(model, episodes, device) for name, episodes in data.items()}
