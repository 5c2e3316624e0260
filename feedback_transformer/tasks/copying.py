"""Copy and reverse (paper, section 4.1.1): write down what was read, in order or backwards, at ten times the length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, documented
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, free_running_scores, generator

BEGIN, GO, END = 10, 11, 12  # after the ten digits


@dataclass(frozen=True)
class Copying(EpisodeTask):
    """Digits are read, then written by the model itself, one after the other, until it writes `end`.

    Copying 3 1 4 (labels stand under the token at which they are asked for):

        input    begin  3  1  4  go  3  1  4
        label      -    -  -  -   3  1  4  end

    and reversing it:

        input    begin  3  1  4  go  4  1  3
        label      -    -  -  -   4  1  3  end

    `character` is the part of the answer's symbols that are right, `sequence` the part of whole answers, both when
    the model reads its own answers.
    """

    reverse: bool = documented(False, "write the digits backwards")
    length: int = documented(40, "digits of the longest string")
    min_length: int = documented(0, "digits of the shortest string; 0 means all are of the same length")
    test_length: int = documented(400, "digits of the strings that models are scored on")

    def __post_init__(self) -> None:
        if not 0 <= self.min_length <= self.length or self.length < 1 or self.test_length < 1:
            raise ConfigError(
                f"Copying needs 0 <= min_length <= length, length >= 1 and test_length >= 1, not "
                f"min_length = {self.min_length}, length = {self.length}, test_length = {self.test_length}"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*"0123456789", "begin", "go", "end")

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def metric(self) -> str:
        return "character"

    def episodes(self, count: int, seed: int) -> Episodes:
        random = generator(seed)
        lengths = random.integers(self.min_length or self.length, self.length + 1, size=count)
        digits = random.integers(0, 10, size=int(lengths.sum()))
        strings = np.split(digits, np.cumsum(lengths)[:-1])
        return Episodes.join(*zip(*map(self.episode, strings), strict=True))

    def episode(self, digits: Array) -> tuple[Array, Array]:
        """Tokens and labels for one string of digits."""
        answer = digits[::-1] if self.reverse else digits
        tokens = np.concatenate([[BEGIN], digits, [GO], answer])
        labels = np.concatenate([np.full(len(digits) + 1, NO_LABEL), answer, [END]])
        return tokens, labels

    def held_out(self) -> Copying:
        return replace(self, length=self.test_length, min_length=0)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return free_running_scores(model, episodes, device)
