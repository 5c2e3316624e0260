"""Tokens in, logits out: a core between an embedding and a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from feedback_transformer.config import ConfigError, ModelConfig
from feedback_transformer.kernels import check_name
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.lstm import LSTM, LSTMState
from feedback_transformer.model.memory import MemoryState
from feedback_transformer.model.transformer import Transformer

CORES: dict[str, type[nn.Module]] = {"feedback": FeedbackTransformer, "transformer": Transformer, "lstm": LSTM}


class LanguageModel(nn.Module):
    """Predicts a symbol at every position: the next token, or, with an `output_size` of its own, any label.

    >>> model = LanguageModel(ModelConfig(model_dim=16), vocab_size=7, output_size=3)
    >>> logits, state = model(torch.tensor([[1, 2, 3, 4]]))
    >>> logits.shape
    torch.Size([1, 4, 3])
    >>> logits, state = model.step(torch.tensor([5]), state)    # one token more
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        output_size: int | None = None,
        tie_weights: bool = False,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        if vocab_size < 1:
            raise ConfigError(f"vocab_size = {vocab_size} must be 1 or more")
        output_size = vocab_size if output_size is None else output_size
        self.config = config
        self.core = CORES[config.core](config)
        if isinstance(self.core, FeedbackTransformer):
            check_name(engine)
            self.core.engine = engine
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        nn.init.normal_(self.embedding.weight, std=config.embedding_std)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.head = nn.Linear(config.model_dim, output_size)
        if tie_weights:
            if output_size != vocab_size:
                raise ConfigError(
                    f"tie_weights needs as many outputs as inputs, but output_size = {output_size} and "
                    f"vocab_size = {vocab_size}"
                )
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """A block: tokens [B, T] -> logits [B, T, V]. Rows where reset [B, T] is true begin anew before that step."""
        y, state = self.core(self._embed(tokens), state, reset)
        return self.head(self.output_dropout(y)), state

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step: tokens [B] -> logits [B, V]."""
        y, state = self.core.step(self._embed(tokens), state)  # type: ignore[operator]
        return self.head(self.output_dropout(y)), state

    def state_from_tensors(self, tensors: dict[str, Tensor]) -> Any:
        """The state whose `tensors()` these are."""
        return (LSTMState if self.config.core == "lstm" else MemoryState).from_tensors(tensors)

    def _embed(self, tokens: Tensor) -> Tensor:
        size = self.embedding.num_embeddings
        # On an accelerator the look would wait for the device; there the data's own checks must do.
        if tokens.device.type == "cpu" and tokens.numel():
            low, high = (int(bound) for bound in torch.aminmax(tokens))
            if low < 0 or high >= size:
                raise ValueError(
                    f"token {low if low < 0 else high} is out of range: the vocabulary has {size} symbols, "
                    f"0 to {size - 1}"
                )
        return self.embedding_dropout(self.embedding(tokens))
