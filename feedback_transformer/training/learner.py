"""A model with its loss as one module, which is what several processes share. One for each kind of model.

All that has gradients is in what `forward` returns first: torch's DistributedDataParallel looks for the parameters of a
step among its outputs. So the state comes back cut from its graph, and the cost of adaptive spans is a part of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.config import ConfigError
from feedback_transformer.data.episodes import NO_LABEL, resets
from feedback_transformer.model.encoder_decoder import EncoderDecoder
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.training.run import RunConfig

Model = LanguageModel | EncoderDecoder


class Learner(nn.Module):
    """A language model: it continues from the last state, or from an empty one at the token `begin`."""

    def __init__(
        self, model: LanguageModel, smoothing: float = 0.0, begin: int | None = None, span_loss: float = 0.0
    ) -> None:
        super().__init__()
        self.model, self.smoothing, self.begin, self.span_loss = model, smoothing, begin, span_loss

    def forward(self, tokens: Tensor, labels: Tensor, state: Any) -> tuple[Tensor, Tensor | float, int, Any]:
        """Summed negative log-likelihood over the labelled positions, the cost of spans, how many labels are right, and
        the state after it, detached."""
        if self.model.config.cutoffs:  # an adaptive softmax is never computed as a whole, so accuracy is unknown
            losses, state = self.model.losses(tokens, labels, state, resets(tokens, self.begin))
            loss, right = losses.sum(), 0
        else:
            logits, state = self.model(tokens, state, resets(tokens, self.begin))
            loss, right = summed(logits, labels, self.smoothing)
        return loss, span_penalty(self.model, self.span_loss), right, state.detach()


class PairLearner(nn.Module):
    """An encoder-decoder: every pair starts from an empty memory, so there is no state to carry."""

    def __init__(self, model: EncoderDecoder, smoothing: float = 0.0, span_loss: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing, self.span_loss = model, smoothing, span_loss

    def forward(
        self, source: Tensor, tokens: Tensor, labels: Tensor, state: None
    ) -> tuple[Tensor, Tensor | float, int, None]:
        loss, right = summed(self.model(source, tokens), labels, self.smoothing)
        return loss, span_penalty(self.model, self.span_loss), right, None


def summed(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
    """The loss over the labelled positions, and how many of them are right.

    Label smoothing spreads a share of the target probability over all symbols.
    """
    asked = {"ignore_index": NO_LABEL, "reduction": "sum", "label_smoothing": smoothing}
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), **asked)  # type: ignore[arg-type]
    return total, int((logits.argmax(dim=-1) == labels).sum())


def span_penalty(model: Any, span_loss: float) -> Tensor | float:
    """What the adaptive spans of all layers cost."""
    if not span_loss:
        return 0.0
    return span_loss * sum((span.penalty() for span in model.spans()), torch.zeros(()))


def make_learner(model: Model, run: RunConfig) -> nn.Module:
    train = run.train
    if isinstance(model, EncoderDecoder):
        return PairLearner(model, train.label_smoothing, train.span_loss)
    if train.label_smoothing and model.config.cutoffs:
        raise ConfigError(
            f"TrainConfig.label_smoothing = {train.label_smoothing} does not work with an adaptive softmax; "
            "set it to 0, or leave ModelConfig.cutoffs empty"
        )
    return Learner(model, train.label_smoothing, getattr(run.task, "begin", None), train.span_loss)
