"""A model with its loss, as one module: what several processes share."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.model.language_model import LanguageModel


class Learner(nn.Module):
    """A model with its loss, as one module: what several processes share."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, labels: Tensor, state: Any) -> tuple[Tensor, int, Any]:
        """Summed negative log-likelihood over the labelled positions, how many are right, and the state after it."""
        if self.model.config.cutoffs:  # an adaptive softmax is never computed whole: nobody knows what it would answer
            losses, state = self.model.losses(tokens, labels, state)
            return losses.sum(), 0, state
        logits, state = self.model(tokens, state)
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL, reduction="sum")
        return total, int((logits.argmax(dim=-1) == labels).sum()), state
