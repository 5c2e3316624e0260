"""Trainings side by side: what becomes of the others when one ends, or when the command does."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from feedback_transformer.experiments.running import SHOWN, Job, Watch, train_all
from feedback_transformer.presets import preset
from feedback_transformer.training.progress import Update

ENDLESS = {"steps": "1000000", "eval_every": "1000000"}
FAILING = """
import sys
from pathlib import Path
from rich.console import Console
from feedback_transformer.experiments.running import Job, train_all
from feedback_transformer.presets import preset

def fail(key):
    while not (place / "long" / "last.safetensors").exists():
        pass  # until the other has begun
    raise OSError("no space left on device")

if __name__ == "__main__":
    place = Path(sys.argv[1])
    short = preset("random-walk", "smoke")
    long = short.override({"steps": "1000000", "eval_every": "1000000", "checkpoint_seconds": "0.1"})
    jobs = {name: Job(name, run, place / name) for name, run in (("short", short), ("long", long))}
    train_all(jobs, 2, Console(), fail)
"""


def test_when_the_command_fails_its_trainings_save_themselves_and_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FAILING)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 1
    assert "no space left on device" in ended.stderr
    assert (tmp_path / "long" / "last.safetensors").exists()


def test_one_that_is_terminated_by_itself_does_not_stop_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    short = preset("random-walk", "smoke")
    runs = {"endless": short.override(ENDLESS), "short": short, "next": short}
    jobs = {name: Job(name, run, tmp_path / name) for name, run in runs.items()}
    done: list[str] = []

    def terminate_the_endless() -> None:
        while "short" not in done:
            time.sleep(0.05)
        for process in multiprocessing.active_children():
            if process.name == "endless":
                process.terminate()

    threading.Thread(target=terminate_the_endless, daemon=True).start()
    assert train_all(jobs, 2, Console(), done.append) == 1
    assert done == ["short", "next"]
    assert "1 of 3 failed: endless" in capfd.readouterr().err


def test_the_live_table_shows_what_reported_last() -> None:
    run = preset("random-walk", "smoke")
    watch = Watch({str(n): Job(f"job {n}", run, Path()) for n in range(SHOWN + 2)}, Console())
    update = Update(1, 2, 3, 0.0, 1.0, 0, 1, 1.0, 1.0, {})
    watch.show("0", update)
    for number in range(1, SHOWN + 2):  # one after the other ends
        watch.show(str(number), update)
        watch.show("0", update)
    shown = [str(cell) for cell in watch.table().columns[0].cells]
    assert "job 0" in shown
    assert "job 1" not in shown
