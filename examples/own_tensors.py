"""Train a Feedback Transformer on your own tensors: here, the running sum of random digits modulo 5."""

import torch

from feedback_transformer import LanguageModel, ModelConfig

torch.manual_seed(0)
model = LanguageModel(ModelConfig(num_layers=2, model_dim=64, memory_size=16), vocab_size=5)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
state, total = None, torch.zeros(32, 1, dtype=torch.long)
for step in range(300):
    digits = torch.randint(5, (32, 8))  # 32 streams, the next 8 steps of each
    sums = (total + digits.cumsum(dim=1)) % 5
    logits, state = model(digits, state)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), sums.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state, total = state.detach(), sums[:, -1:]  # the memory goes on, the gradient does not
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
