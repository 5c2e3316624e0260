"""The cores by name, for the models that put one between an embedding and a head."""

from __future__ import annotations

from typing import Any

from torch import nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.kernels import check_name
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.lstm import LSTM, LSTMState
from feedback_transformer.model.memory import MemoryState
from feedback_transformer.model.transformer import Transformer

CORES: dict[str, type[nn.Module]] = {"feedback": FeedbackTransformer, "transformer": Transformer, "lstm": LSTM}
STATES: dict[str, Any] = {"feedback": MemoryState, "transformer": MemoryState, "lstm": LSTMState}


def make_core(config: ModelConfig, engine: str) -> nn.Module:
    """The core that the configuration names; a Feedback Transformer computes its blocks by that engine."""
    check_name(engine)
    return FeedbackTransformer(config, engine) if config.core == "feedback" else CORES[config.core](config)
