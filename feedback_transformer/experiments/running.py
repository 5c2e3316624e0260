"""Many trainings, several at a time, each in its own process: shown live, stopped and resumed together."""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table

from feedback_transformer.config import ConfigError
from feedback_transformer.training.progress import PlainReporter, Update, show_score
from feedback_transformer.training.record import read_record
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError, deaf_to_interrupts, stop_request
from feedback_transformer.training.supervised import train

INTERRUPTED, FAILED = 130, 1
SHOWN = 12  # rows of the live table: those that reported last


class Job(NamedTuple):
    """A training: its display name, its configuration and its folder."""

    name: str
    run: RunConfig
    folder: Path
    command: str | None = None  # the command that trains it alone, for its record


def finished_record(job: Job) -> dict[str, Any] | None:
    """The record of exactly this run, if it is finished."""
    path = job.folder / "record.json"
    record = read_record(path) if path.exists() else {}
    if not record.get("finished"):
        return None
    try:
        differences = RunConfig.from_dict(record.get("run", {})).differences(job.run.without_places())
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; remove the folder") from None
    if differences:
        raise ConfigError(f"{job.folder} holds another run ({differences[0]}); delete it, or choose another folder")
    return record


def train_all(
    jobs: Mapping[str, Job],
    at_a_time: int,
    console: Console,
    done: Callable[[str], None] = lambda key: None,
    device: str = "cpu",
    threads: int = 1,
) -> int:
    """Run the trainings in order, up to `at_a_time` at once; `done` is called for each that has finished.

    One that fails does not stop the others. Returns an exit code.
    """
    context = multiprocessing.get_context("spawn")
    updates: Any = context.Queue()
    waiting = list(jobs)
    working: dict[str, Any] = {}
    watch = Watch(jobs, console)
    stopped, failed = False, []
    with watch, stop_request() as stopping:
        while working or (waiting and not stopped):
            while waiting and len(working) < at_a_time and not stopped:
                key = waiting.pop(0)
                job = jobs[key]
                arguments = (job.run.to_dict(), str(job.folder), key, job.name, job.command, updates, device, threads)
                # A daemon is terminated, and saves itself, whatever ends this process.
                working[key] = context.Process(target=_train_one, args=arguments, name=job.name, daemon=True)
                with deaf_to_interrupts():
                    working[key].start()
            _drain(updates, watch)
            if stopping.is_set() and not stopped:
                stopped = True
                for process in working.values():
                    process.terminate()  # a training saves itself when terminated
            for key, process in list(working.items()):
                if not process.is_alive():
                    process.join()
                    del working[key]
                    if process.exitcode == 0:
                        done(key)
                    else:
                        failed.append(jobs[key].name)
        _drain(updates, watch)
    if stopped:
        print("stopped; everything is saved. Run the same command again to continue", file=sys.stderr)
    elif failed:
        print(f"{len(failed)} of {len(jobs)} failed: {', '.join(failed)}", file=sys.stderr)
    return INTERRUPTED if stopped else FAILED if failed else 0


def _drain(updates: Any, watch: Watch) -> None:
    """Show what has been reported, waiting briefly for the first report only, since reports never stop coming."""
    try:
        watch.show(*updates.get(timeout=0.3))
        for _ in range(100):
            watch.show(*updates.get_nowait())
    except queue.Empty:
        return


def _train_one(
    run: dict[str, Any], folder: str, key: str, name: str, command: str | None, updates: Any, device: str, threads: int
) -> None:
    """The whole life of one training process."""
    torch.set_num_threads(threads)
    if hasattr(os, "nice"):
        os.nice(1)  # leave the machine usable
    try:
        config = RunConfig.from_dict(run)
        train(config, Path(folder), lambda update: updates.put((key, update)), True, device, command)
    except StoppedError:
        sys.exit(INTERRUPTED)
    except (ValueError, RuntimeError) as error:
        print(f"feedback-transformer: {name}: {error}", file=sys.stderr)
        sys.exit(FAILED)


class Watch:
    """The live table of all trainings in a terminal; plain lines elsewhere."""

    def __init__(self, jobs: Mapping[str, Job], console: Console) -> None:
        self.names = {key: job.name for key, job in jobs.items()}
        self.newest: dict[str, Update] = {}
        self.live = Live(self.table(), console=console, refresh_per_second=2) if console.is_terminal else None
        self.plain = {key: PlainReporter(name) for key, name in self.names.items()}
        self.begin = time.monotonic()

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, key: str, update: Update) -> None:
        self.newest.pop(key, None)  # what runs comes after what has finished
        self.newest[key] = update
        if self.live:
            self.live.update(self.table())
        else:
            self.plain[key](update)

    def table(self) -> Table:
        table = Table()
        for heading in ("model", "steps", "stage", "training", "held-out", "per second", "left"):
            table.add_column(heading, overflow="fold", no_wrap=heading in ("steps", "stage", "left"))
        waiting = len(self.names) - len(self.newest)
        for key, update in list(self.newest.items())[-SHOWN:]:
            held_out = ", ".join(show_score(name, value) for name, value in update.validation.items()) or "-"
            table.add_row(
                self.names[key],
                f"{update.step:,}/{update.total_steps:,}",
                f"{update.stage + 1}/{update.num_stages}",
                update.training() or "-",
                held_out,
                f"{update.tokens_per_second:,.0f} {update.unit}",
                f"{update.seconds_left / 60:.1f} min",
            )
        if waiting:
            table.add_row(f"{waiting} waiting")
        return table
