"""Counting (paper, section 4.1.1): write as many Bs as there were As."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import at_least, check_types, documented, fractions
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, right_labels

A, B, BEGIN, GO, END = range(5)


@dataclass(frozen=True)
class Counting(EpisodeTask):
    """The model reads n As, then writes n Bs and `end`; n is drawn from 1 to `length`. For n = 3:

        input    begin  A  A  A  go  B  B  B
        label      -    -  -  -   B  B  B  end

    Scored by whole sequences: one B too many or too few is wrong. A greedily written answer is right exactly if every
    symbol is right given the right ones before it, so it is scored in blocks with the right symbols as input.
    """

    length: int = documented(50, "the largest count")
    small: float = documented(
        0.0, "the fraction of training counts drawn uniformly in their logarithm, so mostly small ones"
    )

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, 1, "length")
        fractions(self, "small")

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("A", "B", "begin", "go", "end")

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def metric(self) -> str:
        return "sequence"

    @property
    def begin(self) -> int:
        return BEGIN

    def episodes(self, count: int, seed: int) -> Episodes:
        random = generator(seed)
        numbers = random.integers(1, self.length + 1, size=count)
        if self.small:
            by_logarithm = (self.length + 1) ** random.random(count)
            numbers = np.where(random.random(count) < self.small, by_logarithm.astype(int), numbers)
        return Episodes.join(*zip(*(self.episode(int(n)) for n in numbers), strict=True))

    def episode(self, n: int) -> tuple[Array, Array]:
        """Tokens and labels for one count."""
        tokens = np.concatenate([[BEGIN], np.full(n, A), [GO], np.full(n, B)])
        labels = np.concatenate([np.full(n + 1, NO_LABEL), np.full(n, B), [END]])
        return tokens, labels

    def held_out(self) -> Counting:
        return replace(self, small=0.0)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        right = right_labels(model, episodes, device, self.begin)
        asked = np.add.reduceat(episodes.labels != NO_LABEL, episodes.starts)
        return {"sequence": float(np.logical_and.reduceat(right, np.cumsum(asked) - asked).mean())}
