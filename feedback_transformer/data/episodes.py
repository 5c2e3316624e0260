"""Episodes end to end as one stream, and the lanes that a stream is cut into.

A model reads B lanes in parallel, T steps at a time, and carries its memory from block to block:

    stream   e0 e0 e0 e1 e1 e2 e2 e2 e2 e3 e3 e4        episodes, one after the other
    lanes    e0 e0 e0 e1 | e1 e2 e2 e2 | e2 e3 e3 e4    B = 3 lanes of four steps each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feedback_transformer.config import ConfigError
from feedback_transformer.model.language_model import NO_LABEL as NO_LABEL

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Episodes:
    """Tokens and labels of episodes, end to end; `starts` are the positions at which they begin."""

    tokens: Array  # [n]
    labels: Array  # [n], NO_LABEL where nothing is asked
    starts: Array  # [episodes]

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def join(cls, tokens: Sequence[Array], labels: Sequence[Array]) -> Episodes:
        """From one array per episode."""
        lengths = [len(episode) for episode in tokens]
        starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        return cls(np.concatenate(tokens).astype(np.int64), np.concatenate(labels).astype(np.int64), starts)

    @classmethod
    def from_padded(cls, tokens: Array, labels: Array, real: NDArray[np.bool_]) -> Episodes:
        """From rows [episodes, width], keeping only the positions marked `real`."""
        lengths = real.sum(axis=1)
        return cls(tokens[real], labels[real], np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64))

    def bounds(self) -> list[tuple[int, int]]:
        """Begin and end of every episode."""
        return list(zip(self.starts.tolist(), [*self.starts[1:].tolist(), len(self.tokens)], strict=True))


class Lanes(Protocol):
    """B parallel streams, read in blocks."""

    @property
    def steps(self) -> int:
        """How long each lane is."""
        ...

    @property
    def longest_block(self) -> int:
        """How many steps can be read at a time."""
        ...

    def block(self, start: int, steps: int) -> tuple[Tensor, ...]:
        """Tokens and labels [B, T] from `start` on, T <= steps; in general tensors [B, ..], the labels last."""
        ...


@dataclass(frozen=True)
class EpisodeLanes:
    """Lanes in memory: tokens and labels [B, n]."""

    tokens: Tensor
    labels: Tensor

    @property
    def steps(self) -> int:
        return self.tokens.shape[1]

    longest_block = steps

    def block(self, start: int, steps: int) -> tuple[Tensor, Tensor]:
        return self.tokens[:, start : start + steps], self.labels[:, start : start + steps]


def training_lanes(episodes: Episodes, batch_size: int, offset: int) -> EpisodeLanes:
    """The stream, rotated by `offset`, cut into equal lanes; a lane may begin inside an episode.

    The rest of such an episode cannot be predicted, because its beginning is in another lane, so it has no labels. (Of
    a chain each string is an episode: the first ones of a lane may ask for what another lane has read.) The remainder
    at the end, fewer than batch_size steps, is not used in this pass.
    """
    total = len(episodes.tokens)
    steps = total // batch_size
    if steps == 0:
        raise ConfigError(
            f"{total} tokens cannot fill {batch_size} lanes: use fewer lanes (batch_size) or more episodes"
        )
    begins = np.zeros(total, dtype=bool)
    begins[episodes.starts] = True

    def cut(values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.roll(values, -offset)[: steps * batch_size].reshape(batch_size, steps)

    tokens, labels, begins = cut(episodes.tokens), cut(episodes.labels), cut(begins)
    begun = np.logical_or.accumulate(begins, axis=1)
    return EpisodeLanes(torch.from_numpy(tokens.copy()), torch.from_numpy(np.where(begun, labels, NO_LABEL)))


def whole_lanes(episodes: Episodes, batch_size: int) -> EpisodeLanes:
    """Lanes of whole episodes; shorter lanes are filled with steps without labels."""
    groups = np.array_split(np.arange(len(episodes)), min(batch_size, len(episodes)))
    bounds = episodes.bounds()
    spans = [(bounds[group[0]][0], bounds[group[-1]][1]) for group in groups]
    steps = max(end - begin for begin, end in spans)
    tokens = torch.zeros(len(spans), steps, dtype=torch.long)
    labels = torch.full((len(spans), steps), NO_LABEL)
    for row, (begin, end) in enumerate(spans):
        tokens[row, : end - begin] = torch.from_numpy(episodes.tokens[begin:end])
        labels[row, : end - begin] = torch.from_numpy(episodes.labels[begin:end])
    return EpisodeLanes(tokens, labels)


def resets(tokens: Tensor, begin: int | None) -> Tensor | None:
    """[B, T], where the memory is emptied: before every token `begin`; None if nowhere."""
    if begin is None:
        return None
    begins = tokens == begin
    return begins if bool(begins.any()) else None
