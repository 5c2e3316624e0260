"""Tokens in, logits out: a core between an embedding and a head."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from feedback_transformer.config import ConfigError, ModelConfig
from feedback_transformer.model.adaptive_span import AdaptiveSpan
from feedback_transformer.model.cores import STATES, make_core
from feedback_transformer.model.embedding import AdaptiveHead, AdaptiveInput, Clusters, PlainHead, check_tokens

NO_LABEL = -100  # positions without a label; the value that cross_entropy ignores


def make_ends(config: ModelConfig, vocab_size: int, output_size: int) -> tuple[nn.Module, nn.Module]:
    """The embedding and the head: plain, or adaptive if there are cutoffs."""
    dim, cutoffs = config.model_dim, config.cutoffs
    if (config.tie_weights or cutoffs) and output_size != vocab_size:
        raise ConfigError(
            f"tie_weights and cutoffs need as many outputs as inputs, but output_size = {output_size} and "
            f"vocab_size = {vocab_size}"
        )
    if cutoffs:
        clusters = Clusters(vocab_size, dim, cutoffs, config.embedding_std)
        own = clusters if config.tie_weights else Clusters(vocab_size, dim, cutoffs, dim**-0.5)
        return AdaptiveInput(clusters), AdaptiveHead(own, dim)
    embedding, head = nn.Embedding(vocab_size, dim), PlainHead(dim, output_size)
    nn.init.normal_(embedding.weight, std=config.embedding_std)
    if config.tie_weights:
        head.weight = embedding.weight
    return embedding, head


class LanguageModel(nn.Module):
    """Predicts a symbol at every position: the next token or, with a separate `output_size`, any label.

    >>> import torch
    >>> model = LanguageModel(ModelConfig(model_dim=16), vocab_size=7, output_size=3)
    >>> logits, state = model(torch.tensor([[1, 2, 3, 4]]))
    >>> logits.shape
    torch.Size([1, 4, 3])
    >>> logits, state = model.step(torch.tensor([5]), state)    # one more token
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        output_size: int | None = None,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        output_size = vocab_size if output_size is None else output_size
        if vocab_size < 1 or output_size < 1:
            raise ConfigError(f"vocab_size = {vocab_size} and output_size = {output_size} must be 1 or more")
        if config.encoder_layers:
            raise ConfigError(
                f"ModelConfig.encoder_layers = {config.encoder_layers}, but there is no source to read; set it to 0"
            )
        self.config = config
        self.core = make_core(config, engine)
        self.vocab_size = vocab_size
        self.embedding, self.head = make_ends(config, vocab_size, output_size)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.output_dropout = nn.Dropout(config.output_dropout)

    def forward(self, tokens: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """A block: tokens [B, T] -> logits [B, T, V]. Rows where reset [B, T] is true start afresh before that step."""
        y, state = self.core(self._embed(tokens), state, reset)
        return self.head(self.output_dropout(y)), state

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step: tokens [B] -> logits [B, V]."""
        y, state = self.core.step(self._embed(tokens, "[B]"), state)  # type: ignore[operator]
        return self.head(self.output_dropout(y)), state

    def losses(
        self, tokens: Tensor, labels: Tensor, state: Any = None, reset: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Negative log-likelihoods [n] of the labels [B, T] that are not NO_LABEL, flattened.

        The same as from the logits, but an adaptive softmax computes only what it needs.
        """
        y, state = self.core(self._embed(tokens), state, reset)
        asked = labels != NO_LABEL
        return self.head.losses(self.output_dropout(y[asked]), labels[asked]), state  # type: ignore[operator]

    def spans(self) -> list[AdaptiveSpan]:
        """The adaptive spans of all layers, whose penalty is added to the training loss."""
        return [module for module in self.modules() if isinstance(module, AdaptiveSpan)]

    def state_from_tensors(self, tensors: dict[str, Tensor]) -> Any:
        """The state whose `tensors()` these are."""
        return STATES[self.config.core].from_tensors(tensors)

    def _embed(self, tokens: Tensor, shape: str = "[B, T]") -> Tensor:
        check_tokens(tokens, self.vocab_size, shape)
        return self.embedding_dropout(self.embedding(tokens))
