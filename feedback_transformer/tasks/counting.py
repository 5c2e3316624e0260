"""Counting (paper, section 4.1.1): as many Bs as there were As."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, documented
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, right_labels

A, B, BEGIN, GO, END = range(5)


@dataclass(frozen=True)
class Counting(EpisodeTask):
    """n As are read, then the model writes n Bs and `end` by itself; n is drawn from 1 to `length`. For n = 3:

        input    begin  A  A  A  go  B  B  B
        label      -    -  -  -   B  B  B  end

    Scored by whole sequences: one B too many or too few is wrong. What a model writes by itself, always its likeliest
    symbol, is right exactly if each symbol is right behind the right ones, which is asked for many at a time.
    """

    length: int = documented(50, "the largest count")
    small: float = documented(0.0, "the part of the training counts drawn by their logarithm: mostly small ones")

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError(f"Counting.length = {self.length} must be 1 or more")
        if not 0 <= self.small <= 1:
            raise ConfigError(f"Counting.small = {self.small} must be between 0 and 1")

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
