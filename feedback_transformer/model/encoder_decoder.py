"""Source tokens in, target tokens out: an encoder and a core that reads it, between an embedding and a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from feedback_transformer.config import ConfigError, ModelConfig
from feedback_transformer.model.adaptive_span import AdaptiveSpan
from feedback_transformer.model.cores import make_core
from feedback_transformer.model.embedding import PlainHead, check_tokens
from feedback_transformer.model.encoder import Encoder
from feedback_transformer.model.source import Source

PAD, BEGIN, END = 0, 1, 2  # the first symbols of every joint vocabulary
DECODERS = ("feedback", "transformer")  # the cores that can read a source


class EncoderDecoder(nn.Module):
    """Translates: `encode` reads the source once, then the decoder writes the target step by step.

    Source and target share one vocabulary and one embedding, and with `tie_weights` the output layer too. A source or
    target may be padded at the end (with token 0), which changes nothing.

    >>> import torch
    >>> model = EncoderDecoder(ModelConfig(model_dim=16, encoder_layers=2, num_layers=1), vocab_size=9)
    >>> source = torch.tensor([[5, 6, 7, END], [8, END, PAD, PAD]])
    >>> model(source, torch.tensor([[BEGIN, 6], [BEGIN, 7]])).shape             # logits of whole targets
    torch.Size([2, 2, 9])
    >>> reader = model.read(source)                                             # or step by step
    >>> logits, state = reader.step(torch.tensor([BEGIN, BEGIN]))
    """

    def __init__(self, config: ModelConfig, vocab_size: int, engine: str = "auto") -> None:
        super().__init__()
        _check(config, vocab_size)
        self.config, self.vocab_size = config, vocab_size
        self.encoder = Encoder(config)
        self.core = make_core(config, engine)
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        # Drawn small, as the output layer needs them, and scaled up to `embedding_std` as inputs.
        nn.init.normal_(self.embedding.weight, std=config.model_dim**-0.5)
        self.embedding_scale = config.embedding_std * config.model_dim**0.5
        self.head = PlainHead(config.model_dim, vocab_size)
        if config.tie_weights:
            self.head.weight = self.embedding.weight
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.output_dropout = nn.Dropout(config.output_dropout)

    def encode(self, tokens: Tensor) -> Source:
        """tokens [B, S] -> what the decoder reads, projected once for each of its layers"""
        padding = tokens == PAD
        encoded = self.encoder(self._embed(tokens), padding)
        return self.core.stack.read(encoded, padding)  # type: ignore[union-attr, operator]

    def read(self, tokens: Tensor) -> Reader:
        """A model of the target alone, given source tokens [B, S]."""
        return Reader(self, self.encode(tokens))

    def forward(self, source: Tensor, tokens: Tensor) -> Tensor:
        """Whole pairs: source [B, S], target so far [B, T] -> logits of the next tokens [B, T, V]"""
        return self.read(source)(tokens)[0]

    def spans(self) -> list[AdaptiveSpan]:
        """The adaptive spans of all layers, whose penalty is added to the training loss."""
        return [module for module in self.modules() if isinstance(module, AdaptiveSpan)]

    def _embed(self, tokens: Tensor, shape: str = "[B, T]") -> Tensor:
        check_tokens(tokens, self.vocab_size, shape)
        return self.embedding_dropout(self.embedding(tokens) * self.embedding_scale)


@dataclass(frozen=True)
class Reader:
    """A decoder with its source, called like a language model. Its states may have several rows per source (beams)."""

    model: EncoderDecoder
    source: Source

    def __call__(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """A block: tokens [B, T] -> logits [B, T, V]."""
        model = self.model
        y, state = model.core(model._embed(tokens), state, None, self.source)
        return model.head(model.output_dropout(y)), state

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step: tokens [B] -> logits [B, V]."""
        model = self.model
        y, state = model.core.step(model._embed(tokens, "[B]"), state, self.source)  # type: ignore[operator]
        return model.head(model.output_dropout(y)), state

    def reorder(self, index: Tensor) -> Reader:
        """Row i of the source becomes what row index[i] was."""
        return Reader(self.model, self.source.reorder(index))


def _check(config: ModelConfig, vocab_size: int) -> None:
    if vocab_size <= END:
        raise ConfigError(f"vocab_size = {vocab_size} must be above {END}: padding, begin and end are symbols too")
    if config.encoder_layers < 1:
        raise ConfigError("ModelConfig.encoder_layers = 0 must be 1 or more for a model that reads a source")
    if config.core not in DECODERS:
        raise ConfigError(
            f"ModelConfig.core = {config.core!r} cannot read a source; choose one of {', '.join(DECODERS)}"
        )
    if config.cutoffs:
        raise ConfigError(f"ModelConfig.cutoffs = {config.cutoffs} are for language models; leave them out here")
