"""`feedback-transformer demo`: three models learn the random walk from the same episodes with the same settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import positive_number, seed_number
from feedback_transformer.config import CORES, ConfigError
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.running import Job, finished_record, train_all
from feedback_transformer.presets import preset
from feedback_transformer.report.demonstration import random_walk_row
from feedback_transformer.report.experiments import reduction
from feedback_transformer.tasks.random_walk import RandomWalk
from feedback_transformer.tasks.task import predict
from feedback_transformer.training.checkpoint import make_folder, write_json
from feedback_transformer.training.loading import load_run

TASK, SCALES = "random-walk", ("laptop", "smoke")
REDUCED = (
    "Reduced: 0.1M parameters instead of the paper's 3.2M, and minutes of training. The curriculum of walk lengths "
    "and the learned bias over distance are ours, the same for all three models."
)
HELP = """\
Trains a Feedback Transformer, a Transformer and an LSTM on the random walk, from the same episodes with the same
settings, and ends with a table and two pictures. Finished trainings are kept: run it again to continue, or to see the
result at once.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--out", type=Path, help="folder for runs and pictures (demo; demo-smoke with --preset smoke)")
    sub.add_argument("--preset", default="laptop", help="laptop, or smoke to check in seconds that it runs (laptop)")
    sub.add_argument("--jobs", type=positive_number, default=2, help="trainings to run at a time, each on one core (2)")
    sub.add_argument("--seed", type=seed_number, default=0, help="seed of the weights and the walks (0)")


def run(options: argparse.Namespace) -> int:
    usual = Path("demo" if options.preset == "laptop" else f"demo-{options.preset}")
    return demo(options.out or usual, options.preset, options.jobs, options.seed)


def demo(folder: Path, scale: str, jobs: int, seed: int) -> int:
    """Train what has not been trained yet, then show the result; returns the exit code."""
    if scale not in SCALES:
        raise ConfigError(f"the demo has no preset {scale!r}; choose --preset laptop or smoke")
    all_jobs = {core: Job(name, preset(TASK, scale, core, seed), folder / core) for core, name in CORES.items()}
    console = Console()
    make_folder(folder)
    missing = {core: job for core, job in all_jobs.items() if finished_record(job) is None}
    if missing:
        names = ", ".join(job.name for job in missing.values())
        console.print(f"Training {names} on the random walk, {jobs} at a time.")
        code = train_all(missing, jobs, console)
        if code:
            return code
    records = {core: finished_record(job) for core, job in all_jobs.items()}
    folders = {core: job.folder for core, job in all_jobs.items()}
    show_result(folder, folders, {core: record for core, record in records.items() if record}, console)
    console.print(reduction(EXPERIMENTS[TASK], scale) if scale == "smoke" else REDUCED)
    console.print(f"Pictures: {folder / 'learning.png'} and {folder / 'walk.png'}")
    return 0


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


def draw_pictures(folder: Path, folders: Mapping[str, Path], records: Mapping[str, dict[str, Any]]) -> None:
    """Draw both figures; the walk shown is the first of the test set."""
    from feedback_transformer.report import figures  # slow to import

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


COMMANDS = (Command("demo", "train three small models on state tracking, in minutes", HELP, add_arguments, run),)
