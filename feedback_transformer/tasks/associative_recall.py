"""Multi-query associative recall (arXiv 2312.04927): what was the value of this key?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, check_types, documented
from feedback_transformer.data.episodes import NO_LABEL, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, label_accuracy

BEGIN, GAP = 0, 1
SPECIAL = 2
GAP_POWER = 0.01 - 1  # the probability of a question falls with distance by this power, so early is more likely


@dataclass(frozen=True)
class AssociativeRecall(EpisodeTask):
    """Pairs of key and value, then every key once in random order, with gaps; the label is the key's value.

        input    begin  k3  v7  k1  v2  .  k1  .  .  k3
        label      -    -   -   -   -   -  v2  -  -  v7

    `accuracy` is the fraction of right values.
    """

    num_pairs: int = documented(16, "keys to remember, all different")
    num_keys: int = documented(64, "number of possible keys")
    num_values: int = documented(64, "number of possible values")
    length: int = documented(96, "symbols in an episode after `begin`: pairs, questions and gaps")

    def __post_init__(self) -> None:
        check_types(self)
        if not 1 <= self.num_pairs <= self.num_keys or self.num_values < 1:
            raise ConfigError(
                f"AssociativeRecall needs 1 <= num_pairs <= num_keys and num_values >= 1, not num_pairs = "
                f"{self.num_pairs}, num_keys = {self.num_keys}, num_values = {self.num_values}"
            )
        if self.length < 3 * self.num_pairs:
            raise ConfigError(
                f"AssociativeRecall.length = {self.length} has no room for num_pairs = {self.num_pairs} pairs and as "
                f"many questions; it must be {3 * self.num_pairs} or more"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        keys = (f"k{i + 1}" for i in range(self.num_keys))
        return ("begin", ".", *keys, *self.outputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"v{i + 1}" for i in range(self.num_values))

    @property
    def metric(self) -> str:
        return "accuracy"

    @property
    def begin(self) -> int:
        return BEGIN

    def episodes(self, count: int, seed: int) -> Episodes:
        random, pairs = generator(seed), self.num_pairs
        keys = random.random((count, self.num_keys)).argsort(axis=1)[:, :pairs]
        values = random.integers(0, self.num_values, size=(count, pairs))
        read = np.stack([SPECIAL + keys, SPECIAL + self.num_keys + values], axis=2).reshape(count, -1)
        # The largest log-weights plus Gumbel noise are draws without replacement by those weights.
        room = self.length - 2 * pairs
        noise = GAP_POWER * np.log(np.arange(1, room + 1)) + random.gumbel(size=(count, room))
        places = random.permuted(noise.argsort(axis=1)[:, -pairs:], axis=1)
        asked, labels = np.full((count, room), GAP), np.full((count, 1 + self.length), NO_LABEL)
        np.put_along_axis(asked, places, SPECIAL + keys, axis=1)
        np.put_along_axis(labels, 1 + 2 * pairs + places, values, axis=1)
        tokens = np.concatenate([np.full((count, 1), BEGIN), read, asked], axis=1)
        return Episodes(tokens.ravel(), labels.ravel(), np.arange(count) * (1 + self.length))

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return {"accuracy": label_accuracy(model, episodes, device, self.begin)}
