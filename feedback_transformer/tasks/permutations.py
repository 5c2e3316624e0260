"""The word problem of S5: which permutation of five things is the product of all so far?

Not in the paper. It is complete for NC1, so models of constant depth that read all symbols in parallel (TC0) are not
expected to solve it, which makes it the standard test of state tracking.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import at_least, check_types, documented, one_of
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, right_labels

SIZE = 5
BEGIN = 0
ALL = np.array(list(itertools.permutations(range(SIZE))))  # [120, 5]; the first changes nothing
NAMES = tuple("".join(str(place + 1) for place in permutation) for permutation in ALL)
# The permutations that are symbols, by their number in ALL; token i + 1 is the i-th of them.
GENERATORS = {"swaps": np.flatnonzero((np.arange(SIZE) != ALL).sum(axis=1) == 2), "all": np.arange(len(ALL))}


@dataclass(frozen=True)
class Permutations(EpisodeTask):
    """Five things stand in a row; each symbol rearranges them, and its label is their order after it.

    A symbol says where the new thing at each place comes from: 21345 exchanges the first two.

        input    begin  21345  13245  21345
        label      -    21345  23145  32145

    `swaps` are the ten permutations that exchange two places; `all` are all 120.
    """

    generators: str = documented("swaps", "the symbols: swaps (of two places) or all permutations")
    length: int = documented(32, "symbols in a training episode")
    test_length: int = documented(256, "symbols in a test episode")

    def __post_init__(self) -> None:
        check_types(self)
        one_of(self, "generators", GENERATORS)
        at_least(self, 1, "length", "test_length")

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("begin", *(NAMES[number] for number in GENERATORS[self.generators]))

    @property
    def outputs(self) -> tuple[str, ...]:
        return NAMES

    @property
    def metric(self) -> str:
        return "accuracy"

    @property
    def begin(self) -> int:
        return BEGIN

    def episodes(self, count: int, seed: int) -> Episodes:
        symbols = GENERATORS[self.generators]
        drawn = generator(seed).integers(0, len(symbols), size=(count, self.length))
        state, states = np.zeros(count, dtype=np.int64), np.empty_like(drawn)
        for t in range(self.length):
            state = states[:, t] = after()[state, symbols[drawn[:, t]]]
        tokens = np.concatenate([np.full((count, 1), BEGIN), drawn + 1], axis=1)
        labels = np.concatenate([np.full((count, 1), NO_LABEL), states], axis=1)
        return Episodes(tokens.ravel(), labels.ravel(), np.arange(count) * (self.length + 1))

    def held_out(self) -> Permutations:
        return replace(self, length=self.test_length)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        right = right_labels(model, episodes, device, self.begin).reshape(len(episodes), -1)
        return {"accuracy": float(right.mean()), "last": float(right[:, -1].mean())}


@functools.cache
def after() -> Array:
    """[120, 120]: the number of the order that results when the second rearranges what the first left."""
    products = np.stack([ALL[:, symbol] for symbol in ALL], axis=1)  # [state, symbol, 5]
    code = SIZE ** np.arange(SIZE)
    numbers = np.full(SIZE**SIZE, -1)
    numbers[ALL @ code] = np.arange(len(ALL))
    return numbers[products @ code]
