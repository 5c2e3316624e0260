"""`feedback-transformer evaluate`: the scores of a trained model on its task, or on a changed one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from feedback_transformer.commands import translate
from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import add_machine_options, check_device
from feedback_transformer.config import ConfigError, parse_assignments
from feedback_transformer.tasks.language import Language
from feedback_transformer.tasks.translation import Translation
from feedback_transformer.training.loading import load_run, take_corpus
from feedback_transformer.training.progress import show_score
from feedback_transformer.training.supervised import score

HELP = """\
examples:
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0 length=1000 --episodes 100
  feedback-transformer evaluate runs/deeper/last.safetensors --seed 7

A folder stands for its best checkpoint. Fields of the task can be set with field=value, for example to see whether a
model trained on 100 actions is still right after 1000. If a corpus has moved since training, give it as data=FOLDER.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument("overrides", nargs="*", default=[], metavar="field=value", help="set a field of the task")
    sub.add_argument("--episodes", type=int, help="number of episodes (that of the run's test set)")
    sub.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_machine_options(sub)


def run(options: argparse.Namespace) -> int:
    device = check_device(options.device)
    assignments = parse_assignments(options.overrides)
    run, model = load_run(options.checkpoint, device, take_corpus(assignments))
    run = translate.tuned(run, options.checkpoint)
    changed = run.with_task(assignments)
    task, own = changed.task, run.task
    if (task.input_size, task.output_size) != (own.input_size, own.output_size):
        raise ConfigError(
            f"{options.checkpoint} has {own.input_size} input and {own.output_size} output symbols, this task "
            f"{task.input_size} and {task.output_size}; do not set fields that change them"
        )
    held_out = getattr(task, "held_out", lambda: task)()
    if isinstance(task, Translation | Language) and (options.episodes is not None or options.seed is not None):
        fewer = "; for fewer pairs set test_pairs=N" if isinstance(task, Translation) else ""
        raise ConfigError(f"--episodes and --seed are for tasks with random episodes, not for {run.task_name}{fewer}")
    if isinstance(task, Translation):
        return translate.evaluate(task, model, torch.device(device), f"{run.task_name} {run.model.core}", options.json)
    if assignments and held_out == getattr(own, "held_out", lambda: own)():
        raise ConfigError(f"{', '.join(assignments)} changes nothing: {run.task_name} is scored on {held_out}")
    count = options.episodes if options.episodes is not None else run.train.test_episodes
    if count < 1:
        raise ConfigError(f"--episodes = {count} must be 1 or more")
    seed = run.seed if options.seed is None else options.seed
    scores = score(model, changed, task.evaluation("test", count, seed), torch.device(device))
    if options.json:
        print(json.dumps(scores))
    else:
        print(f"{run.task_name} {run.model.core}: " + ", ".join(show_score(*item) for item in scores.items()))
    return 0


COMMANDS = (Command("evaluate", "score a trained model on its task", HELP, add_arguments, run),)
