"""Lanes over a long array of tokens, such as a memory-mapped corpus; the label is always the next token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.data.vocabulary import Tokens


@dataclass(frozen=True)
class TokenLanes:
    """B equal lanes of one array, from `offset` on; only requested blocks are read."""

    tokens: Tokens
    batch_size: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise DataError(
                f"{len(self.tokens):,} tokens do not fill {self.batch_size} lanes; lower batch_size, or take more text"
            )

    @property
    def steps(self) -> int:
        return (len(self.tokens) - self.offset - 1) // self.batch_size

    longest_block = steps

    def block(self, start: int, steps: int) -> tuple[Tensor, Tensor]:
        """Tokens [B, T] and, as labels, the tokens one step later."""
        begins = [self.offset + row * self.steps + start for row in range(self.batch_size)]
        rows = np.stack([self.tokens[begin : begin + steps + 1] for begin in begins]).astype(np.int64)
        both = torch.from_numpy(rows)
        return both[:, :-1], both[:, 1:]


def scoring_blocks(
    tokens: Tokens, batch_size: int, context: int, steps: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of tokens, labels and resets [B, T] in which every token but the first is a label exactly once.

    Each lane but the first starts `context` tokens before its part, which it reads without labels, so that the first
    token of its part is predicted with as full a memory as any. The first lane has nothing to read there: it reads
    zeros, and is reset where the text begins. If it is the only one, it begins there.
    """
    total, context = len(tokens) - 1, context if batch_size > 1 else 0
    part = -(-total // batch_size)
    begins = np.arange(batch_size) * part - context
    for at in range(0, part + context, steps):
        positions = begins[:, None] + np.arange(at, min(at + steps, part + context))
        wanted = positions - begins[:, None] >= context
        real = (positions >= 0) & (positions < total)
        clipped = np.clip(positions, 0, total - 1)
        block = np.where(real, tokens[clipped], 0).astype(np.int64)
        labels = np.where(real & wanted, tokens[clipped + 1].astype(np.int64), NO_LABEL)
        yield torch.from_numpy(block), torch.from_numpy(labels), torch.from_numpy(positions == 0)
