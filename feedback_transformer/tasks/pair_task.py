"""What all tasks on pairs share: training batches of similar length, and targets that a model generates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.data.pairs import Array, PairBatches, PairSplit, batches_by_length, pad
from feedback_transformer.decoding import Sampling, Search, beam_search, sample
from feedback_transformer.model.encoder_decoder import PAD
from feedback_transformer.tasks.task import derive_seed

Draw = tuple[Sampling, torch.Generator]  # how targets are sampled, if they are not searched

SCORING_TOKENS = 4096  # per scored batch, with padding; affects only memory and speed


class PairTask(ABC):
    """A task whose model reads a source and writes a target. A frozen dataclass, like every task."""

    @property
    @abstractmethod
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int:
        return self.input_size

    @property
    @abstractmethod
    def metric(self) -> str: ...

    @property
    def lower_is_better(self) -> bool:
        return False

    def fingerprints(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def training_pairs(self, count: int, seed: int, number: int) -> PairSplit:
        """What pass `number` over the training data reads."""

    def lanes(self, batch_size: int, count: int, seed: int, number: int) -> PairBatches:
        """All training pairs once, in batches of at most `batch_size` tokens per side, which differ in every pass."""
        split = self.training_pairs(count, seed, number)
        random = np.random.default_rng(derive_seed(seed, "train", 1 + number))
        return PairBatches(split, batches_by_length(split.longest, batch_size, random))


@torch.no_grad()
def pair_perplexity(model: nn.Module, split: PairSplit, device: torch.device) -> float:
    """exp of the mean loss per target token, including the end."""
    total, count = 0.0, 0
    for batch in batches_by_length(split.longest, SCORING_TOKENS):
        source, tokens, labels = (rows.to(device) for rows in split.rows(batch))
        logits = model(source, tokens)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL, reduction="none")
        total += float(losses.cpu().sum(dtype=torch.float64))
        count += int((labels != NO_LABEL).sum())
    return math.exp(min(total / max(1, count), 700.0))


def write_targets(
    model: nn.Module,
    sources: Sequence[Array],
    search: Search,
    device: torch.device,
    budget: int = SCORING_TOKENS,
    draw: Draw | None = None,
) -> list[list[int]]:
    """The best target of each source, or a sampled one, in the order of the sources.

    Sources of similar length are searched together.
    """
    lengths = np.array([len(source) for source in sources], dtype=np.int64)
    written: list[list[int]] = [[] for _ in sources]
    for batch in batches_by_length(lengths, max(1, budget // search.beam)):
        tokens = pad([sources[i] for i in batch], PAD).to(device)
        limits = search.limits(torch.from_numpy(lengths[batch])).to(device)
        reader = model.read(tokens)  # type: ignore[operator]
        if draw is not None:
            best = sample(reader, limits, search, *draw)
        else:
            best = [hypotheses[0] for hypotheses in beam_search(reader, limits, search)]
        for index, hypothesis in zip(batch.tolist(), best, strict=True):
            written[index] = hypothesis.tokens
    return written
