"""Use the core alone, between an embedding and a head of your own, one step at a time."""

import torch

from feedback_transformer import FeedbackTransformer, ModelConfig

core = FeedbackTransformer(ModelConfig(num_layers=4, model_dim=32, num_heads=4, memory_size=50)).eval()
observations = torch.randn(8, 20, 32)  # eight environments, twenty steps

state = None
with torch.no_grad():
    for t in range(20):
        features, state = core.step(observations[:, t], state)
        ended = torch.rand(8) < 0.1  # some episodes are over: their rows are reset
        state = state.reset(ended)
print(features.shape, state.length.tolist())
