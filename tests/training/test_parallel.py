"""Several processes, started by torchrun, do what one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from feedback_transformer.config import ConfigError
from feedback_transformer.training.parallel import Team

SETTINGS = ["random-walk", "--preset", "smoke", "dropout=0", "steps=30", "--threads", "1"]


def start(processes: int, *arguments: str) -> subprocess.Popen[str]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), "-m", "feedback_transformer", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def losses(folder: Path, metric: str = "accuracy") -> list[Any]:
    record = json.loads((folder / "record.json").read_text())
    assert record["finished"]
    return [point[name] for point in record["curve"] for name in ("loss", metric, "running_accuracy")]


@pytest.mark.parametrize("core", ["feedback", "lstm"])
def test_two_processes_have_the_losses_of_one_with_the_same_global_batch(core: str, tmp_path: Path) -> None:
    for processes in (1, 2):
        run = start(processes, *SETTINGS, f"core={core}", "accumulate=2", "--out", str(tmp_path / str(processes)))
        said, complained = run.communicate(timeout=240)
        assert run.returncode == 0, complained
        assert said.count("test accuracy") == 1, "only one process talks"
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_two_processes_share_batches_of_pairs_as_one_learns_from_them(tmp_path: Path) -> None:
    settings = [
        "copy-pairs",
        "--preset",
        "smoke",
        "length=5",
        "min_length=2",
        "batch_tokens=128",
        "label_smoothing=0.1",
    ]
    settings += ["num_layers=1", "encoder_layers=1", "steps=12", "eval_every=6", "--threads", "1"]
    for processes in (1, 2):
        run = start(processes, *settings, "--out", str(tmp_path / str(processes)))
        _, complained = run.communicate(timeout=240)
        assert run.returncode == 0, complained
    both = [losses(tmp_path / processes, "character") for processes in ("1", "2")]
    assert both[1] == pytest.approx(both[0], rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["layer_drop=0.5"],
        ["layer_drop=0.5", "adaptive_span=true", "span_loss=0.01", "accumulate=2"],
        ["bptt=1", "engine=loop"],
    ],
)
def test_two_processes_go_on_where_a_block_leaves_parameters_out(overrides: list[str], tmp_path: Path) -> None:
    run = start(2, *SETTINGS, *overrides, "--out", str(tmp_path / "run"))
    _, complained = run.communicate(timeout=240)
    assert run.returncode == 0, complained
    assert len(losses(tmp_path / "run")) > 0


@pytest.mark.slow
def test_when_one_process_dies_the_job_ends_and_resumes(tmp_path: Path) -> None:
    settings = [*SETTINGS, "steps=400", "eval_every=100", "checkpoint_seconds=0", "--quiet"]
    whole = start(2, *settings, "--out", str(tmp_path / "whole"))
    whole.communicate(timeout=240)
    broken = start(2, *settings, "--out", str(tmp_path / "broken"))
    last = tmp_path / "broken" / "last.safetensors"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(broken.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(children.split()[-1]), signal.SIGKILL)
    _, complained = broken.communicate(timeout=120)
    assert broken.returncode != 0
    assert "SIGKILL" in complained or "Signal 9" in complained
    resumed = start(2, "--resume", str(tmp_path / "broken"), "--quiet", "--threads", "1")
    _, complained = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, complained
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")


def test_a_batch_that_cannot_be_shared_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="batch_size = 8 cannot be shared by 3 processes"):
        Team.join(torch.device("cpu"), 8)
