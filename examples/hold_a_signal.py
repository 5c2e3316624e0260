"""Hold the last signal of a stream for as long as it takes, with a window of four steps.

A Feedback Transformer passes it on from memory to memory; a Transformer of two layers sees 2 * 4 steps back at most.
"""

import torch

from feedback_transformer import LanguageModel, ModelConfig


def blocks(count, batch=32, steps=16):
    """Rare signals 1..9 in a stream of zeros, and at every step the last signal so far."""
    last = torch.zeros(batch, 1, dtype=torch.long)
    for _ in range(count):
        signals = torch.randint(10, (batch, steps)) * (torch.rand(batch, steps) < 0.1)
        seen = torch.cat([last, signals], dim=1)
        newest = torch.where(seen > 0, torch.arange(steps + 1), 0).cummax(dim=1).values
        labels = seen.gather(1, newest)[:, 1:]
        last = labels[:, -1:]
        yield signals, labels


for core in ("feedback", "transformer"):
    torch.manual_seed(0)
    model = LanguageModel(ModelConfig(core=core, num_layers=2, model_dim=64, memory_size=4), vocab_size=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    state, right = None, []
    for signals, labels in blocks(300):
        logits, state = model(signals, state)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = state.detach()
        right.append((logits.argmax(-1) == labels).float().mean().item())
    print(f"{core}: {sum(right[-20:]) / 20:.1%} of the last answers right")
