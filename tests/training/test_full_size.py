"""The paper's models at full size take real updates here: forward, backward, clipping, Adam, the memory carried.

Only the batch and the block are cut down, to what a small machine holds. Each runs in a process of its own, which tells
its peak memory and the time of an update; `pytest -m slow -s` prints them.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from feedback_transformer.data.prepare import prepare
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.costing import measured_cost
from feedback_transformer.presets import preset

WORDS = 267_735  # of WikiText-103
SCRIPT = """
import json, math, resource, sys, time
import torch
from feedback_transformer.presets import preset
from feedback_transformer.training.supervised import Trainer
from pathlib import Path

task, scale, core, folder, *overrides = sys.argv[1:]
torch.set_num_threads(1)
run = preset(task, scale, core).override(dict(word.split("=", 1) for word in overrides))
trainer = Trainer(run, Path(folder), torch.device("cpu"))
trainer.begin(resume=False)
begin, before = time.process_time(), {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
trainer.update()
trainer.update()
seconds = (time.process_time() - begin) / 2
print(json.dumps({
    "parameters": sum(p.numel() for p in trainer.model.parameters()),
    "unmoved": [name for name, p in trainer.model.named_parameters() if torch.equal(p, before[name])],
    "losses": trainer.losses,
    "uniform": math.log(run.task.output_size),
    "carried": trainer.memories[0].memory.shape[2],
    "cpu_seconds": round(seconds, 1),
    "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
}))
"""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Made-up texts with the vocabularies of the real ones."""
    home, draw = tmp_path_factory.mktemp("corpora"), random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW\n"
    characters = letters + "".join(draw.choices(letters, k=20_000)) + letters * 60
    words = " ".join(draw.sample([f"w{n}" for n in range(WORDS - 2)], WORDS - 2)) + "\n"
    made = {}
    for name, tokens, content in [
        ("ptb-char", "characters", characters.encode()),
        ("enwik8", "bytes", bytes(range(256)) * 200),
        ("wikitext-103", "words", words.encode()),
    ]:
        folder = home / f"{name}-text"
        folder.mkdir()
        for split in ("train", "valid", "test"):
            (folder / f"{split}.txt").write_bytes(content)
        made[name] = prepare("text", home / name, folder, tokens).folder
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "scale", "core", "millions", "reduced"),
    [
        ("random-walk", "paper", "feedback", 3.2, "batch_size=64 train_episodes=1000"),
        ("ptb-char", "paper", "feedback", 10.7, "batch_size=16"),
        ("enwik8", "paper", "feedback", 77, "batch_size=4 bptt_start=16"),
        ("enwik8", "paper", "transformer", 77, "batch_size=4 bptt_start=16"),
        ("wikitext-103", "paper-small", "feedback", 44, "batch_size=4 bptt=64"),
        ("wikitext-103", "paper-small", "transformer", 44, "batch_size=4 bptt=64"),
        ("wikitext-103", "paper", "feedback", 138, "batch_size=2 bptt=32"),
        ("wikitext-103", "paper", "transformer", 138, "batch_size=2 bptt=32"),
    ],
)
def test_a_model_of_the_paper_takes_real_updates(
    task: str, scale: str, core: str, millions: float, reduced: str, corpora: dict[str, Path], tmp_path: Path
) -> None:
    overrides = reduced.split() + ([f"data={corpora[task]}"] if task in corpora else [])
    command = [sys.executable, "-c", SCRIPT, task, scale, core, str(tmp_path / "run"), *overrides]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(f"\n{task} {scale} {core}, {reduced}: {told}")
    assert told["parameters"] / 1e6 == pytest.approx(millions, rel=0.01)
    assert all("span" in name for name in told["unmoved"]), "every weight learns; a span may stay at its lower end"
    assert all(0 < loss < 2 * told["uniform"] for loss in told["losses"]), "weights start where learning can"
    assert told["carried"] > 0
    assert told["gigabytes"] < 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["char-ptb", "memory-composition", "single-layer", "depth", "depth-words", "options", "wikitext", "enwik8"],
)
def test_every_language_model_of_the_paper_is_built_stepped_and_costed(name: str, corpora: dict[str, Path]) -> None:
    for variant in {variant.run.model: variant for variant in EXPERIMENTS[name].variants("paper")}.values():
        run = variant.run.override({"data": str(corpora[variant.run.task_name])})
        cost = measured_cost(run)
        print(f"{variant.key}: {cost}")
        assert cost.minutes > 1
        assert 0 < cost.loss < 2 * math.log(run.task.output_size)


def test_full_windows_are_those_of_the_paper() -> None:
    windows = {("ptb-char", "paper"): 512, ("enwik8", "paper"): 8192, ("wikitext-103", "paper"): 2048}
    windows[("wikitext-103", "paper-small")] = 512
    for (task, scale), window in windows.items():
        assert preset(task, scale).model.memory_size == window
