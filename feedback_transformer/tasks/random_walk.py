"""Random walk (paper, section 4.1.2): where is the agent, given all its actions?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, check_types, documented
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, label_accuracy

RESET, FORWARD, LEFT, RIGHT = range(4)
HEADINGS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left as (row, column)


@dataclass(frozen=True)
class RandomWalk(EpisodeTask):
    """An agent in a grid steps forward, turns left or turns right at random; each action's label is its new cell.

    It starts in the middle of the grid, heading up. A step that would leave the grid changes nothing. After `length`
    actions a reset symbol puts it back. On the 3 x 3 grid (cells a1 to c3, rows a, b, c from the top):

        input    reset  forward  right  forward  forward  left
        output     -       a2      a2      a3       a3      a3

    (up from b2 to a2; turned right; to a3; the wall holds it there; turned left.)
    """

    size: int = documented(8, "cells on a side of the grid")
    length: int = documented(100, "actions between two resets")

    def __post_init__(self) -> None:
        check_types(self)
        if self.size < 1 or self.length < 1:
            raise ConfigError(f"RandomWalk needs a size and a length of 1 or more, not {self.size} and {self.length}")

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("reset", "forward", "left", "right")

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"{chr(ord('a') + row)}{column + 1}" for row in range(self.size) for column in range(self.size))

    @property
    def start(self) -> int:
        """The cell in which a walk begins."""
        return (self.size // 2) * self.size + self.size // 2

    @property
    def metric(self) -> str:
        return "accuracy"

    def episodes(self, count: int, seed: int) -> Episodes:
        actions = generator(seed).integers(FORWARD, RIGHT + 1, size=(count, self.length))
        tokens = np.concatenate([np.full((count, 1), RESET), actions], axis=1)
        labels = np.concatenate([np.full((count, 1), NO_LABEL), self.walk(actions)], axis=1)
        return Episodes.join(list(tokens), list(labels))

    def walk(self, actions: Array) -> Array:
        """actions [episodes, length] -> the cell after each of them [episodes, length], row * size + column."""
        count = len(actions)
        place = np.tile(np.array(divmod(self.start, self.size)), (count, 1))
        heading = np.zeros(count, dtype=np.int64)
        cells = np.empty_like(actions)
        for t in range(actions.shape[1]):
            heading = (heading + (actions[:, t] == RIGHT) - (actions[:, t] == LEFT)) % 4
            ahead = place + HEADINGS[heading] * (actions[:, t] == FORWARD)[:, None]
            place = np.clip(ahead, 0, self.size - 1)
            cells[:, t] = place[:, 0] * self.size + place[:, 1]
        return cells

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return {"accuracy": label_accuracy(model, episodes, device)}
