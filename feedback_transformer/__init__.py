"""The Feedback Transformer (Fan et al., arXiv 2002.09402), with Transformer and LSTM baselines.

from feedback_transformer import LanguageModel, ModelConfig

model = LanguageModel(ModelConfig(num_layers=4, model_dim=256, num_heads=4), vocab_size=256)
logits, state = model(tokens)          # a block of steps
logits, state = model.step(token, state)   # one more step, at constant cost
"""

from feedback_transformer.config import ConfigError, ModelConfig, TrainConfig
from feedback_transformer.model.contract import Core, State
from feedback_transformer.model.encoder_decoder import EncoderDecoder
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.model.lstm import LSTM, LSTMState
from feedback_transformer.model.memory import MemoryState
from feedback_transformer.model.policy import Policy
from feedback_transformer.model.transformer import Transformer

__version__ = "0.1.0"

__all__ = [
    "LSTM",
    "ConfigError",
    "Core",
    "EncoderDecoder",
    "FeedbackTransformer",
    "LSTMState",
    "LanguageModel",
    "MemoryState",
    "ModelConfig",
    "Policy",
    "State",
    "TrainConfig",
    "Transformer",
    "__version__",
]
