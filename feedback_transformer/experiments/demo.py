"""The demonstration: three models learn the random walk from the same episodes with the same settings.

Trainings run in processes of their own, each on one core; a finished one is kept, an unfinished one goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table

from feedback_transformer.config import ConfigError
from feedback_transformer.presets import preset
from feedback_transformer.report import figures
from feedback_transformer.report.figures import NAMES
from feedback_transformer.report.tables import random_walk_row
from feedback_transformer.tasks.random_walk import RandomWalk
from feedback_transformer.tasks.task import predict
from feedback_transformer.training.checkpoint import write_json
from feedback_transformer.training.loading import load_run
from feedback_transformer.training.progress import PlainReporter, Update
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError, stop_request
from feedback_transformer.training.supervised import train

TASK = "random-walk"
INTERRUPTED, FAILED = 130, 1


def demo(folder: Path, scale: str, jobs: int, seed: int) -> int:
    """Train what is not trained yet, then show the result; returns the exit code."""
    runs = {core: preset(TASK, scale, core, seed) for core in NAMES}
    folders = {core: folder / core for core in runs}
    console = Console()
    if jobs < 1:
        raise ConfigError(f"--jobs = {jobs} must be 1 or more")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
    missing = {core: run for core, run in runs.items() if finished_record(folders[core], run) is None}
    if missing:
        console.print(f"Training {', '.join(NAMES[core] for core in missing)} on the random walk, {jobs} at a time.")
        code = train_all(missing, folders, jobs, console)
        if code:
            return code
    records = {core: finished_record(folders[core], run) for core, run in runs.items()}
    show_result(folder, folders, {core: record for core, record in records.items() if record}, console)
    return 0


def finished_record(folder: Path, run: RunConfig) -> dict[str, Any] | None:
    """The record of this very run, if it is finished."""
    try:
        record = json.loads((folder / "record.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None
    if not record.get("finished"):
        return None
    differences = RunConfig.from_dict(record["run"]).differences(run)
    if differences:
        raise ConfigError(f"{folder} holds another run ({differences[0]}); choose another --out, or delete it")
    return record


# ------------------------------------------------------------------------------------------------ training


def train_all(runs: Mapping[str, RunConfig], folders: Mapping[str, Path], jobs: int, console: Console) -> int:
    """Up to `jobs` trainings at a time, watched; returns an exit code."""
    context = multiprocessing.get_context("spawn")
    updates: Any = context.Queue()
    waiting = list(runs)
    working: dict[str, Any] = {}
    watch = Watch(runs, console)
    code = 0
    with watch, stop_request() as stopping:
        while working or (waiting and not code):
            while waiting and len(working) < jobs and not code:
                core = waiting.pop(0)
                arguments = (runs[core].to_dict(), str(folders[core]), core, updates)
                working[core] = context.Process(target=train_one, args=arguments)
                working[core].start()
            drain(updates, watch)
            if stopping.is_set() and code != INTERRUPTED:
                code = INTERRUPTED
                for process in working.values():
                    process.terminate()  # which makes a training save itself
            for core, process in list(working.items()):
                if not process.is_alive():
                    process.join()
                    code = code or process.exitcode
                    del working[core]
        drain(updates, watch)
    if code == INTERRUPTED:
        print("stopped, and everything is saved; run it again to go on", file=sys.stderr)
    return code


def drain(updates: Any, watch: Watch) -> None:
    """Show what has been reported, waiting a moment for the first of it: trainings report without end."""
    try:
        watch.show(*updates.get(timeout=0.3))
        for _ in range(100):
            watch.show(*updates.get_nowait())
    except queue.Empty:
        return


def train_one(run: dict[str, Any], folder: str, core: str, updates: Any) -> None:
    """The whole life of one training process."""
    torch.set_num_threads(1)
    if hasattr(os, "nice"):
        os.nice(1)  # leave the machine usable
    try:
        train(RunConfig.from_dict(run), Path(folder), lambda update: updates.put((core, update)), resume=True)
    except StoppedError:
        sys.exit(INTERRUPTED)
    except (ValueError, RuntimeError) as error:
        print(f"feedback-transformer: {NAMES[core]}: {error}", file=sys.stderr)
        sys.exit(FAILED)


class Watch:
    """The live table of all trainings in a terminal; plain lines elsewhere."""

    def __init__(self, runs: Mapping[str, RunConfig], console: Console) -> None:
        self.newest: dict[str, Update | None] = dict.fromkeys(runs)
        self.live = Live(self.table(), console=console, refresh_per_second=2) if console.is_terminal else None
        self.plain = {core: PlainReporter(NAMES[core]) for core in runs}
        self.begin = time.monotonic()

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, core: str, update: Update) -> None:
        self.newest[core] = update
        if self.live:
            self.live.update(self.table())
        else:
            self.plain[core](update)

    def table(self) -> Table:
        table = Table("model", "steps", "stage", "training accuracy", "held-out accuracy", "tokens/s", "left")
        for core, update in self.newest.items():
            if update is None:
                table.add_row(NAMES[core], "waiting")
                continue
            held_out = f"{update.validation['accuracy']:.1%}" if update.validation else "-"
            table.add_row(
                NAMES[core],
                f"{update.step:,}/{update.total_steps:,}",
                f"{update.stage + 1}/{update.num_stages}",
                f"{update.accuracy:.1%}",
                held_out,
                f"{update.tokens_per_second:,.0f}",
                f"{update.seconds_left / 60:.1f} min",
            )
        return table


# -------------------------------------------------------------------------------------------------- result


def show_result(
    folder: Path, folders: Mapping[str, Path], records: Mapping[str, dict[str, Any]], console: Console
) -> None:
    """A table, two pictures and a summary in JSON."""
    episodes = next(iter(records.values()))["run"]["train"]["test_episodes"]
    table = Table(
        "model",
        "parameters",
        "tokens",
        "minutes",
        "accuracy, reduced (%)",
        "paper, full scale (%)",
        title=f"Random walk: accuracy on {episodes:,} held-out walks",
        title_justify="left",
    )
    for core, record in records.items():
        table.add_row(*random_walk_row(core, record))
    draw_pictures(folder, folders, records)
    summary = {core: {k: v for k, v in record.items() if k != "curve"} for core, record in records.items()}
    write_json(folder / "result.json", summary)
    console.print(table)
    console.print(
        "Reduced: 0.1M parameters where the paper has 3.2M, minutes of training, a curriculum of walk lengths and a "
        "learned bias over distance that are ours; the same for all three models."
    )
    console.print(f"Pictures: {folder / 'learning.png'} and {folder / 'walk.png'}")


def draw_pictures(folder: Path, folders: Mapping[str, Path], records: Mapping[str, dict[str, Any]]) -> None:
    """The first walk of the test set is drawn, whichever it is."""
    by_step, first, truth, size, start = {}, {}, None, 0, 0
    for core in records:
        run, model = load_run(folders[core])
        task = run.task
        assert isinstance(task, RandomWalk)
        episodes = task.evaluation("test", run.train.test_episodes, run.seed)
        tokens, labels = (torch.from_numpy(a).view(len(episodes), -1) for a in (episodes.tokens, episodes.labels))
        answers = predict(model, tokens, torch.device("cpu"))[:, 1:]
        by_step[core] = (answers == labels[:, 1:]).double().mean(dim=0).numpy()
        first[core], truth = answers[0].tolist(), labels[0, 1:].tolist()
        size, start = task.size, task.start
    assert truth is not None
    figures.learning_figure(folder / "learning.png", records, by_step, "accuracy")
    figures.walk_figure(folder / "walk.png", size, start, truth, first)
