"""Commands that train several models at a time are stopped by Ctrl-C, save everything, and go on when called again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMANDS = {  # at full size, so that none is done before it is stopped; and two of their trainings
    "demo": (["demo"], ["demo/feedback", "demo/transformer"]),
    "reproduce": (
        ["reproduce", "parity", "--jobs", "2", "--results", "results"],
        ["runs/reproduce-laptop/parity/feedback-seed-0", "runs/reproduce-laptop/parity/top-seed-0"],
    ),
}


def run_and_stop(words: list[str], place: Path, folders: list[Path]) -> str:
    """Run the command until all trainings have reported, then press Ctrl-C; returns what it said."""
    command = [sys.executable, "-m", "feedback_transformer", *words]
    log = place / "said"
    with log.open("w") as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL, cwd=place)
        deadline = time.monotonic() + 120
        while len(reported_steps(log.read_text())) < len(folders):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert all((folder / "last.safetensors").exists() for folder in folders)
    return log.read_text()


def reported_steps(said: str) -> dict[str, list[int]]:
    """The steps that each training reported."""
    steps: dict[str, list[int]] = {}
    for name, step in re.findall(r"^(.+): (\d+)/\d+, loss", said, re.MULTILINE):
        steps.setdefault(name, []).append(int(step))
    return steps


def test_ctrl_c_while_the_trainings_are_still_being_started_is_a_sentence(tmp_path: Path) -> None:
    """In a terminal, all processes of the command hear of it."""
    command = [sys.executable, "-m", "feedback_transformer", *COMMANDS["reproduce"][0]]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=tmp_path, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("this system does not list the processes that one has started")
    deadline = time.monotonic() + 60
    while len(children.read_text().split()) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)  # one that multiprocessing needs, and two trainings
    time.sleep(0.3)  # in the middle of their imports
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "stopped; everything is saved" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_saves_all_trainings_and_the_same_command_goes_on(name: str, tmp_path: Path) -> None:
    words, places = COMMANDS[name]
    folders = [tmp_path / place for place in places]
    said = run_and_stop(words, tmp_path, folders)
    assert "stopped; everything is saved. Run the same command again to continue" in said
    assert "Traceback" not in said
    before, after = reported_steps(said), reported_steps(run_and_stop(words, tmp_path, folders))
    assert before.keys() == after.keys()
    for training, steps in after.items():
        assert steps[0] > before[training][-1], f"{training} goes on where it was"
