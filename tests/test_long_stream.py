"""A stream has no end: reading and writing it takes no more memory after a million tokens than after a thousand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LIMIT = 14  # MB; an allocator is not still, but a state a step would take 25 and more

SCRIPT = """
import itertools, json, sys
import numpy as np
import torch
from feedback_transformer import LanguageModel, ModelConfig
from feedback_transformer.decoding import Sampling, generate
from feedback_transformer.tasks.language import mean_loss

core, written, read, device = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), torch.device(sys.argv[4])
torch.set_num_threads(1)
config = ModelConfig(core=core, num_layers=1, model_dim=16, num_heads=1, memory_size=128)
model = LanguageModel(config, vocab_size=11).to(device).eval()

def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

def growth(go, tokens, first):
    go(first)
    before = megabytes()
    go(tokens - first)
    return megabytes() - before

stream = generate(model, torch.zeros(1, 1, dtype=torch.long, device=device), Sampling(temperature=0))
print(json.dumps({
    "write": growth(lambda tokens: sum(1 for _ in itertools.islice(stream, tokens)), written, written // 10),
    "read": growth(lambda tokens: mean_loss(model, np.zeros(tokens, dtype=np.uint8), device), read, read // 2),
}))
"""


def growth(core: str, written: int, read: int, device: str) -> dict[str, float]:
    """Megabytes by which a process of its own grows after a tenth of what it writes, and half of what it reads."""
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from /proc")
    command = [sys.executable, "-c", SCRIPT, core, str(written), str(read), device]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("core", ["feedback", "transformer"])
def test_a_stream_is_read_and_written_in_constant_memory(core: str, request: pytest.FixtureRequest) -> None:
    """128 memories are 8 KB: keeping a state a step would take 25 MB here, or keys and values of all that was read."""
    grown = growth(core, 4_000, 50_000, request.config.getoption("--device"))
    assert max(grown.values()) < LIMIT, grown


@pytest.mark.slow
@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_a_million_tokens_are_read_and_written_in_constant_memory(core: str, request: pytest.FixtureRequest) -> None:
    written = 1_000_000 if core == "feedback" else 100_000  # the baselines write a few hundred tokens a second
    grown = growth(core, written, 1_000_000, request.config.getoption("--device"))
    print(grown)
    assert max(grown.values()) < LIMIT, grown
