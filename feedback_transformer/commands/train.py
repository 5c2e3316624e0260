"""`feedback-transformer train`: a task, a preset and field=value make a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import add_machine_options, check_device
from feedback_transformer.config import ConfigError, parse_assignments
from feedback_transformer.experiments.running import INTERRUPTED
from feedback_transformer.presets import SCALES, configured
from feedback_transformer.tasks import TASKS
from feedback_transformer.training.loading import began_with, corpus_of, locate, read_config, take_corpus
from feedback_transformer.training.parallel import follows, local_device
from feedback_transformer.training.progress import show_score, terminal_reporter
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError
from feedback_transformer.training.supervised import train

HELP = """\
examples:
  feedback-transformer train random-walk
  feedback-transformer train random-walk core=transformer --seed 1
  feedback-transformer train algorithmic-3 num_layers=4 learning_rate=1e-3 steps=20000 --out runs/deeper
  feedback-transformer train random-walk --preset paper --device cuda
  feedback-transformer train random-walk engine=loop
  feedback-transformer train corridor length=100 core=lstm
  feedback-transformer train --resume runs/deeper
  torchrun --nproc-per-node 2 -m feedback_transformer train random-walk

Any field of the task, the model or the training can be set with field=value; `feedback-transformer list fields`
explains each. Ctrl-C saves the run; --resume continues it, with the same result as without the interruption.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("task", nargs="?", help="a task; see `feedback-transformer list tasks`")
    sub.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="field=value",
        help="set a field of the task, the model or the training",
    )
    sub.add_argument("--preset", help=f"preset to start from: {', '.join(SCALES)} (laptop)")
    sub.add_argument("--out", type=Path, help="folder of the run (runs/TASK-CORE-PRESET-SEED)")
    sub.add_argument("--resume", type=Path, metavar="FOLDER", help="continue the run in this folder")
    sub.add_argument("--quiet", action="store_true", help="print only the final result")
    add_machine_options(sub)


def run(options: argparse.Namespace) -> int:
    device = check_device(local_device(options.device))
    run, folder = run_to_train(options)
    title = f"{run.task_name} {run.model.core}"
    held = corpus_of(run)
    if held not in (None, run.task_name) and run.task_name not in ("text", "pairs") and not follows():
        print(f"note: this corpus is {held!r}; scores on it are not scores on {run.task_name}", file=sys.stderr)
    try:
        with terminal_reporter(title, options.quiet or follows()) as report:
            resume = options.resume is not None
            command = began_with(folder) if resume else None
            record = train(run, folder, report, resume, device, command)
    except StoppedError as stopped:
        print(f"{stopped}. To continue: feedback-transformer train --resume {folder}", file=sys.stderr)
        return INTERRUPTED
    if follows():
        return 0
    scores = ", ".join(show_score(name, value) for name, value in record["test"].items())
    for who, value in record.get("bounds", {}).items():
        scores += f", {show_score(run.task.metric, value).replace(run.task.metric, who)}"
    cost = f"{record['tokens']:,} {record.get('unit', 'tokens')}, {record['wall_seconds']:.0f} s"
    print(f"{title}: test {scores} ({cost}); the run is in {folder}")
    return 0


def run_to_train(options: argparse.Namespace) -> tuple[RunConfig, Path]:
    """The run that the options describe, and its folder."""
    words = [word for word in [options.task, *options.overrides] if word is not None]
    if options.resume is not None:
        folder = options.resume
        run = read_config(folder)
        if options.seed is not None and options.seed != run.seed:
            raise ConfigError(f"{folder} was started with --seed {run.seed}; leave out --seed to continue it")
        if options.preset is not None:
            raise ConfigError(f"{folder} has its configuration; leave out --preset to continue it")
        if options.out is not None:
            raise ConfigError(f"--resume continues in {folder} itself; leave out --out")
        names = [word for word in words if "=" not in word]
        if names and names[0] != run.task_name:
            raise ConfigError(f"{folder} is a run of {run.task_name}, not {names[0]}; leave out the task")
        assignments = parse_assignments(word for word in words if "=" in word)
        run = locate(run, folder, take_corpus(assignments))
        return run.override(assignments), folder
    if options.task is None:
        raise ConfigError(f"which task? choose one of {', '.join(TASKS)}, or continue a run with --resume FOLDER")
    scale = options.preset or "laptop"
    run = configured(options.task, scale, options.seed or 0, parse_assignments(options.overrides))
    name = f"{run.task_name}-{run.model.core}-{scale}-{run.seed}"
    return run, options.out or Path("runs") / name


COMMANDS = (Command("train", "train a model on a task", HELP, add_arguments, run),)
