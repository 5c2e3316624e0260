"""Language modelling: which token comes next? (paper, sections 4.3.2 and 4.3.3, and the ablations)"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, at_least, check_types, documented
from feedback_transformer.data.corpus import Corpus
from feedback_transformer.data.token_lanes import TokenLanes, scoring_blocks
from feedback_transformer.data.vocabulary import Tokens
from feedback_transformer.decoding import BLOCK
from feedback_transformer.tasks.task import derive_seed

SCORING_LANES = 32
CHARACTER_LIKE = ("characters", "bytes")


class HeldOut(NamedTuple):
    """A text to score models on."""

    tokens: Tokens
    bytes_per_token: float | None  # None for a part of a split, where it is unknown


@dataclass(frozen=True)
class Language:
    """Predict every token of a prepared corpus from all before it.

        input    t h e _ c a
        label    h e _ c a t

    Scored by `bits` per token for characters and bytes, by `perplexity` for words and word pieces, over the whole
    split, each token once and with a full memory. `bits_per_byte` is added where it is a different number, so that
    models of different tokens can be compared.
    """

    data: str = documented("", "folder of a corpus, made by `feedback-transformer prepare`")
    valid_tokens: int = documented(0, "validate on this many tokens only, the first ones; 0 means all")

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, 0, "valid_tokens")

    @property
    def corpus(self) -> Corpus:
        if not self.data:
            raise ConfigError("Language.data is not set; give the folder of a prepared corpus, data=FOLDER")
        return _open(self.data)

    @property
    def input_size(self) -> int:
        return self.corpus.vocabulary.size

    @property
    def output_size(self) -> int:
        return self.input_size

    @property
    def metric(self) -> str:
        return "bits" if self.corpus.description["tokens"] in CHARACTER_LIKE else "perplexity"

    @property
    def lower_is_better(self) -> bool:
        return True

    def fingerprints(self) -> dict[str, str]:
        return self.corpus.fingerprints()

    def lanes(self, batch_size: int, count: int, seed: int, number: int) -> TokenLanes:
        """The training split, from a different offset in every pass; `count` is not used."""
        tokens = self.corpus.train
        furthest = max(1, TokenLanes(tokens, batch_size).steps // 8)
        offset = int(np.random.default_rng(derive_seed(seed, "train", 1 + number)).integers(furthest))
        return TokenLanes(tokens, batch_size, offset)

    def held_out(self) -> Language:
        return replace(self, valid_tokens=0)  # which does not affect the test set

    def evaluation(self, split: str, count: int, seed: int) -> HeldOut:
        name = "test" if split == "test" else "valid"
        tokens = self.corpus.split(name)
        if len(tokens) < 2:
            raise ConfigError(f"the {name} split of {self.data} has {len(tokens)} tokens: there is nothing to score")
        if name == "valid" and 0 < self.valid_tokens < len(tokens) - 1:
            return HeldOut(tokens[: self.valid_tokens + 1], None)
        return HeldOut(tokens, self.corpus.bytes_per_token(name))

    def score(self, model: nn.Module, data: HeldOut, device: torch.device) -> dict[str, float]:
        nats = mean_loss(model, data.tokens, device)
        bits = nats / math.log(2)
        scores = {"bits": bits} if self.metric == "bits" else {"perplexity": math.exp(min(nats, 700.0))}
        if data.bytes_per_token is not None and (self.metric != "bits" or data.bytes_per_token != 1):
            scores["bits_per_byte"] = bits / data.bytes_per_token
        return scores


@functools.lru_cache(maxsize=4)
def _open(folder: str) -> Corpus:
    return Corpus.open(folder)


@torch.no_grad()
def mean_loss(model: nn.Module, tokens: Tokens, device: torch.device, lanes: int = SCORING_LANES) -> float:
    """Mean negative log-likelihood of every token but the first, each predicted once with a full memory."""
    context = int(model.config.memory_size)  # type: ignore[union-attr, arg-type]
    lanes = max(1, min(lanes, len(tokens) // (4 * context)))
    total, count, state = 0.0, 0, None
    for block, labels, reset in scoring_blocks(tokens, lanes, context, BLOCK):
        losses, state = model.losses(  # type: ignore[operator]
            block.to(device), labels.to(device), state, reset.to(device) if bool(reset.any()) else None
        )
        total += float(losses.cpu().sum(dtype=torch.float64))
        count += losses.numel()
    return total / count
