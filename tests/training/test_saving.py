"""A run is saved, stopped, killed and continued; its folder and its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from feedback_transformer.cli import main
from feedback_transformer.config import ConfigError
from feedback_transformer.training import checkpoint, record, supervised
from feedback_transformer.training.averaging import average
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.loading import load_run
from feedback_transformer.training.stopping import StoppedError
from feedback_transformer.training.supervised import Trainer, train
from tests.training.runs import CPU, assert_same, small_run


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
@pytest.mark.parametrize("at", [3, 10, 13])
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(
    core: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(core, curriculum="length=4", curriculum_gate=0.9, curriculum_deadline=0.4, finetune_steps=4)
    train(run, tmp_path / "whole")
    update = Trainer.update

    def interrupted(self: Trainer) -> None:
        update(self)
        if self.progress.step == at:
            os.kill(os.getpid(), signal.SIGINT)

    before = set(threading.enumerate())  # trainers that other tests began and left may still be among them
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", interrupted)
        with pytest.raises(StoppedError, match=f"stopped at step {at}"):
            train(run, tmp_path / "cut")
    if at < run.train.eval_every:
        with pytest.raises(CheckpointError, match="was stopped before its first evaluation; continue it with"):
            load_run(tmp_path / "cut")
    left = set(threading.enumerate()) - before
    assert not [t for t in left if "tensorboard" in type(t).__module__], "its curves are written"
    torch.manual_seed(99)  # a resumed process comes with other random numbers
    train(run, tmp_path / "cut", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_a_run_killed_at_any_moment_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """kill -9 again and again, wherever it is, then to the end."""
    overrides = ["steps=60", "checkpoint_seconds=0", "eval_every=20", "dropout=0.1"]
    command = [sys.executable, "-m", "feedback_transformer", "train", "--threads", "1", "--quiet"]
    fresh = [*command, "random-walk", *overrides, "--preset", "smoke", "--out"]
    subprocess.run([*fresh, str(tmp_path / "whole")], check=True)
    last = tmp_path / "killed" / "last.safetensors"
    process = subprocess.Popen([*fresh, str(tmp_path / "killed")])
    for kill in range(3):
        before = last.stat().st_mtime_ns if last.exists() else 0
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if last.exists() and last.stat().st_mtime_ns != before:
                break
            time.sleep(0.01)
        time.sleep(0.013 * kill)
        process.kill()
        process.wait()
        process = subprocess.Popen([*command, "--resume", str(tmp_path / "killed")])
    assert process.wait(timeout=120) == 0
    assert_same(tmp_path / "whole", tmp_path / "killed")


def test_a_checkpoint_is_as_readable_as_any_file(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a.safetensors", {"x": torch.ones(3)}, {})
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_best_weights_that_are_not_of_the_best_step_are_not_scored(tmp_path: Path) -> None:
    trainer = Trainer(small_run(), tmp_path, CPU)
    trainer.begin(resume=False)
    trainer.update()
    trainer.evaluate()
    trainer.update()
    trainer.save("best")  # as a second process would
    with pytest.raises(ConfigError, match="is of step 2, not of 1; train it again"):
        trainer.finish()


def test_a_run_killed_after_its_best_weights_goes_on_though_they_now_score_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may round otherwise; the best before these weights is gone, so they stay the best."""
    found = iter([0.5, 0.9, 0.4, 0.3])
    monkeypatch.setattr(supervised, "score", lambda *_: {"accuracy": next(found)})
    run = small_run(steps=2, eval_every=1)
    trainer = Trainer(run, tmp_path, CPU)
    trainer.begin(resume=False)
    trainer.update()
    trainer.evaluate()
    trainer.update()
    monkeypatch.setattr(trainer, "save", lambda name, save=trainer.save: save(name) if name == "best" else None)
    trainer.evaluate()  # killed before "last"
    trainer.lock.close()
    assert train(run, tmp_path, resume=True)["best"] == {"step": 2, "accuracy": 0.4}


def test_a_run_killed_before_its_first_checkpoint_keeps_the_command_that_began_it(tmp_path: Path) -> None:
    trainer = Trainer(small_run(), tmp_path, CPU, "feedback-transformer train random-walk")
    trainer.begin(resume=False)
    trainer.lock.close()
    assert main(["train", "--resume", str(tmp_path), "--quiet"]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["command"] == "feedback-transformer train random-walk"


def test_what_a_killed_process_has_half_written_is_removed(tmp_path: Path) -> None:
    half = tmp_path / ".last.safetensors.123.tmp"
    half.write_text("half")
    with checkpoint.lock_folder(tmp_path):
        assert not half.exists()


def test_a_folder_is_for_one_training_at_a_time(tmp_path: Path) -> None:
    run = small_run()
    trainer = Trainer(run, tmp_path, CPU)
    trainer.begin(resume=False)
    with pytest.raises(ConfigError, match="another process is training in"):
        train(run, tmp_path, resume=True)
    trainer.lock.close()
    assert train(run, tmp_path, resume=True)["finished"]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(small_run(), tmp_path / "run")
    before = (tmp_path / "run" / "last.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run; continue it with --resume"):
        train(small_run(steps=30), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is of another run: train.steps is 20, not 30"):
        train(small_run(steps=30), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == before


def test_truncated_and_foreign_checkpoints_are_a_sentence(tmp_path: Path) -> None:
    train(small_run(), tmp_path / "run")
    whole = (tmp_path / "run" / "best.safetensors").read_bytes()
    for name, content in {"truncated": whole[: len(whole) // 2], "empty": b"", "foreign": b"PK\x03\x04" * 99}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match="is truncated or not a checkpoint"):
            load_run(tmp_path / name)
    from safetensors.torch import save_file

    for name, header in {"list": "[1]", "no run": '{"format": 1}', "empty run": '{"format": 1, "run": {}}'}.items():
        save_file({"a": torch.zeros(1)}, tmp_path / name, metadata={"feedback-transformer": header})
        with pytest.raises(CheckpointError, match=r"is damaged|is not a checkpoint of a run"):
            load_run(tmp_path / name)
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="not a checkpoint of feedback-transformer"):
        load_run(tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_run(tmp_path / "nowhere")


def test_no_run_goes_on_from_weights_alone(tmp_path: Path) -> None:
    run = small_run(keep_checkpoints=1)
    train(run, tmp_path)
    weights = next(tmp_path.glob("step-*.safetensors"))
    for name in ("best", "last"):
        whole = (tmp_path / f"{name}.safetensors").read_bytes()
        shutil.copy(weights, tmp_path / f"{name}.safetensors")
        with pytest.raises(CheckpointError, match=f"{name}.safetensors holds weights alone"):
            train(run, tmp_path, resume=True)
        (tmp_path / f"{name}.safetensors").write_bytes(whole)
        with pytest.raises(CheckpointError, match="is what the run itself goes on from; choose another file"):
            average(tmp_path, 1, tmp_path / f"{name}.safetensors")


def test_a_record_names_the_commit_of_this_code_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed in the environment of a project, it stands in that project's checkout."""
    installed = tmp_path / "site-packages" / "record.py"
    installed.parent.mkdir()
    installed.write_text("")
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "mine"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(record, "__file__", str(installed))
    assert record.commit() is None
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert len((record.commit() or "").rstrip("+")) == 40, "where it belongs to the checkout"


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, {"x": torch.ones(3)}, {"n": 1})

    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(CheckpointError, match="disk full"):
        checkpoint.write_atomically(path, fail)
    tensors, meta = checkpoint.load(path)
    assert meta["n"] == 1
    assert tensors["x"].sum() == 3
    assert list(tmp_path.iterdir()) == [path]
