"""The command: what it says, where it ends, and that a user's mistake is one sentence with exit code 2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from feedback_transformer.cli import main
from feedback_transformer.commands import train as training
from feedback_transformer.data.corpora import KNOWN
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.presets import preset
from feedback_transformer.training import checkpoint
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.supervised import Trainer, train

SMOKE = ["train", "random-walk", "--preset", "smoke", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main([*SMOKE, "--out", str(folder)]) == 0
    return folder


def test_the_command_starts_without_what_few_of_its_uses_need() -> None:
    slow = ["torch._dynamo", "matplotlib", "gymnasium", "tensorboard", "sacrebleu"]
    program = f"import sys, feedback_transformer.cli; print([name for name in {slow} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence of a command that fails with exit code 2."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("feedback-transformer: ")
    assert "Traceback" not in said
    assert "\n" not in said
    return said


def test_train_tells_the_score_and_where_the_run_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*SMOKE, "core=lstm", "--out", str(tmp_path / "run"), "--seed", "5"]) == 0
    said = capsys.readouterr().out
    assert "random-walk lstm: test accuracy" in said
    assert str(tmp_path / "run") in said
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 5


def test_evaluate_gives_the_score_of_the_record(capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    assert main(["evaluate", str(trained), "--json"]) == 0
    record = json.loads((trained / "record.json").read_text())
    assert json.loads(capsys.readouterr().out) == record["test"]
    assert main(["evaluate", str(trained / "last.safetensors"), "length=30", "--episodes", "3"]) == 0


def test_list_names_every_task_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("random-walk", "algorithmic-5", "counting-1k", "smoke", "laptop", "paper"))
    assert main(["list", "corpora"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*KNOWN, *PAIR_CORPORA))
    assert main(["list", "fields"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("num_layers", "curriculum_gate", "printable", "test_length"))


@pytest.mark.parametrize("command", ["train", "evaluate", "list", "demo"])
def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert len(capsys.readouterr().out.splitlines()) > 8


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "random-wlk"], "no task 'random-wlk'; did you mean 'random-walk'?"),
        (["train", "random-walk", "--preset", "papr"], "no preset 'papr'; did you mean 'paper'?"),
        (["train", "random-walk", "num_layer=3"], "no field 'num_layer'; did you mean 'num_layers'"),
        (["train", "random-walk", "num_layers"], "'num_layers' is not an override; write it as field=value"),
        (["train", "random-walk", "num_layers=-3"], "ModelConfig.num_layers = -3 must be 1 or more"),
        (["train", "random-walk", "num_layers=x"], "ModelConfig.num_layers = 'x' is not of type int"),
        (["train", "random-walk", "--device", "gpu9"], "device 'gpu9' is not available"),
        (["train", "random-walk", "--device", "meta"], "device 'meta' is not available"),
        (["train", "arithmetic", "length=4", "min_length=4"], "length = 4 = min_length must be odd without brackets"),
        (["train", "random-walk", "steps=1e400"], "TrainConfig.steps = '1e400' is not of type int"),
        (["train", "random-walk", "learning_rate=inf"], "learning_rate = 'inf' is not of type float, and finite"),
        (["train", "random-walk", "engine=turbo"], "there is no engine 'turbo'"),
        (["train", "random-walk", "core=lstm", "engine=turbo"], "there is no engine 'turbo'"),
        (["train", "algorithmic-3", "print_weight=nan"], "print_weight = 'nan' is not of type float, and finite"),
        (["train", "algorithmic-3", "print_weight=-1"], "Algorithmic.print_weight = -1.0 must be 0 or more"),
        (["train", "algorithmic-3", "echo=7"], "Algorithmic.echo = 7.0 must be from 0 to 1"),
        (["train", "random-walk", "train_episodes=1", "batch_size=5000"], "7 tokens cannot fill 5000 lanes"),
        (["train", "s5", "core=transformer", "memory=top"], "ModelConfig.memory is of the core 'feedback'"),
        (["train", "s5", "memory=top", "memory_top=1"], "memory_top is of the core 'feedback' with the memory 'wei"),
        (
            ["train", "copy-pairs", "batch_size=2"],
            "TrainConfig.batch_size = 2 has no effect here: pairs are read whole",
        ),
        (["train", "copy-pairs", "bptt=99"], "TrainConfig.bptt = 99 has no effect here: pairs are read whole"),
        (["train", "parity", "batch_tokens=7"], "TrainConfig.batch_tokens = 7 has no effect here: it is for pairs"),
        (
            ["train", "text", "test_episodes=3"],
            "TrainConfig.test_episodes = 3 has no effect here: a corpus has its own",
        ),
        (["train", "parity", "span_loss=1"], "TrainConfig.span_loss = 1.0 has no effect here: set adaptive_span=true"),
        (["train", "corridor", "label_smoothing=0.5"], "TrainConfig.label_smoothing = 0.5 has no effect here"),
        (
            ["train", "corridor", "train_episodes=3"],
            "TrainConfig.train_episodes = 3 has no effect here: worlds are end",
        ),
        (["train", "corridor", "optimizer=rmsprop", "adam_beta2=0.5"], "adam_beta2 = 0.5 has no effect here: it"),
        (["train", "corridor", "optimizer_epsilon=0"], "ActConfig.optimizer_epsilon = 0.0 must be 1e-12 or more"),
        (["train", "s5", "core=lstm", "memory_bottom=1"], "memory_bottom is of the core 'feedback' with the memory"),
        (["train"], "which task? choose one of random-walk"),
        (["train", "--resume", "nowhere"], "nowhere holds no run"),
        (["evaluate", "nowhere"], "there is no checkpoint nowhere; give the folder that `train` made"),
        (["bench", "--from-record", "nowhere.json"], "there is no record nowhere.json"),
        (["demo", "--preset", "paper"], "the demo has no preset 'paper'; choose --preset laptop or smoke"),
    ],
)
def test_a_mistake_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in complaint(capsys, *arguments)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "random-walk", "--seed", "-1"],
        ["train", "random-walk", "--threads", "0"],
        ["demo", "--seed", "x"],
        ["demo", "--jobs", "0"],
        ["reproduce", "depth", "--jobs", "x"],
    ],
)
def test_an_argument_that_is_no_such_number_is_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "is not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[]", b'{"seed": "abc"}', b'{"task_name": "copy", "model": []}', b"{"]
)
def test_a_damaged_configuration_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert "config.json is damaged" in complaint(capsys, "train", "--resume", str(tmp_path))


def test_a_field_that_does_not_change_the_score_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "copy", "--preset", "smoke", "--quiet", "--out", str(tmp_path / "copy")]) == 0
    assert "length changes nothing: copy is scored on" in complaint(
        capsys, "evaluate", str(tmp_path / "copy"), "length=9"
    )
    run = preset("flip-flop", "smoke").override({"steps": "1"})
    train(run, tmp_path / "flip-flop")
    assert "ignore changes nothing" in complaint(capsys, "evaluate", str(tmp_path / "flip-flop"), "ignore=0.3")


def test_a_full_disk_is_a_sentence_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 0
    before = (tmp_path / "run" / "last.safetensors").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    trainer = Trainer(preset("random-walk", "smoke"), tmp_path / "run", torch.device("cpu"))
    with pytest.raises(CheckpointError, match=r"No space left on device.*what was there before is kept"):
        trainer.save("last")
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == before
    assert "No space left on device" in complaint(capsys, *SMOKE, "--out", str(tmp_path / "other"))


def test_only_want_of_memory_is_called_that(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(error: Exception) -> None:
        def instead(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(training, "train", instead)

    fail(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."))
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 1
    assert "there is not enough memory" in capsys.readouterr().err
    fail(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        main([*SMOKE, "--out", str(tmp_path / "run")])


def test_an_unwritable_folder_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to" in complaint(capsys, *SMOKE, "--out", str(tmp_path / "file" / "run"))
    assert "cannot write to" in complaint(capsys, "demo", "--preset", "smoke", "--out", str(tmp_path / "file" / "demo"))


def test_a_finished_run_is_not_overwritten(capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    before = (trained / "last.safetensors").read_bytes()
    assert "already holds a run" in complaint(capsys, *SMOKE, "--out", str(trained))
    assert "model.num_layers is 2, not 3" in complaint(capsys, "train", "--resume", str(trained), "num_layers=3")
    assert "is a run of random-walk, not copy; leave out the task" in complaint(
        capsys, "train", "copy", "--resume", str(trained)
    )
    assert "leave out --preset" in complaint(capsys, "train", "--resume", str(trained), "--preset", "paper")
    assert (trained / "last.safetensors").read_bytes() == before


def test_a_config_that_does_not_fit_the_checkpoint_is_a_sentence(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    assert "only fields of the task can be set" in complaint(capsys, "evaluate", str(trained), "num_layers=3")
    assert "the task has no field 'lenght'; did you mean 'length'?" in complaint(
        capsys, "evaluate", str(trained), "lenght=3"
    )
    assert "num_layers" not in complaint(capsys, "evaluate", str(trained), "zzzz=3")
    assert "64 output symbols, this task 4 and 9" in complaint(capsys, "evaluate", str(trained), "size=3")
    (tmp_path / "half.safetensors").write_bytes((trained / "best.safetensors").read_bytes()[:999])
    assert "truncated" in complaint(capsys, "evaluate", str(tmp_path / "half.safetensors"))


def test_resuming_a_finished_run_tells_its_score_again(capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    assert main(["train", "--resume", str(trained), "--quiet"]) == 0
    assert "test accuracy" in capsys.readouterr().out


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "feedback_transformer", *SMOKE, "steps=100000", "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (folder / "last.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"To continue: feedback-transformer train --resume {folder}" in said
    assert "Traceback" not in said


def test_a_core_may_be_named_with_its_section(tmp_path: Path) -> None:
    for number, name in enumerate(("core", "model.core")):
        assert main([*SMOKE, f"{name}=transformer", "steps=1", "--out", str(tmp_path / str(number))]) == 0
    one, other = (json.loads((tmp_path / n / "config.json").read_text()) for n in "01")
    assert one == other
    assert one["model"]["shared_kv"] is False


def test_the_recorded_command_is_the_one_that_began_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = str(tmp_path / "run")
    for words in ([*SMOKE, "curriculum=length=4;length=6", f"--out={run}"], ["train", "--resume", run, "--quiet"]):
        monkeypatch.setattr(sys, "argv", ["feedback-transformer", *words])
        assert main(words) == 0
        record = json.loads((tmp_path / "run" / "record.json").read_text())
        began = "feedback-transformer train random-walk --preset smoke --quiet 'curriculum=length=4;length=6'"
        assert record["command"] == began


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "feedback_transformer", "list", "tasks"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "cannot write the output (No space left on device)" in ended.stderr


def test_a_field_given_as_an_option_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "random-walk", "--steps", "10"])
    assert "unrecognized arguments: --steps; a field is set with field=value" in capsys.readouterr().err
