"""`feedback-transformer list`: what there is to choose from."""

from __future__ import annotations

import argparse
from dataclasses import fields

from rich.console import Console
from rich.table import Table

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.reproduce import SPEED
from feedback_transformer.config import COMPOSITIONS, CORES, ActConfig, ModelConfig, TrainConfig
from feedback_transformer.data.corpora import KNOWN
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.kernels import engines
from feedback_transformer.presets import SCALES
from feedback_transformer.tasks import TASKS

SECTIONS: dict[type, str] = {
    ModelConfig: "ModelConfig",
    TrainConfig: "TrainConfig",
    ActConfig: "ActConfig (worlds, besides those of TrainConfig)",
}
LISTS = ("tasks", "corpora", "presets", "engines", "experiments", "fields")
HELP = """\
examples:
  feedback-transformer list            tasks, corpora, presets, engines and experiments
  feedback-transformer list fields     every field that field=value can set
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("what", nargs="?", choices=LISTS, help="list only these")


def run(options: argparse.Namespace) -> int:
    console = Console()
    if options.what in (None, "tasks"):
        table = Table("task", "description", title="tasks", title_justify="left")
        for name, entry in TASKS.items():
            table.add_row(name, entry.summary)
        console.print(table)
    if options.what in (None, "presets"):
        table = Table("preset", "description", title="presets", title_justify="left")
        for name, summary in SCALES.items():
            table.add_row(name, summary)
        console.print(table)
    if options.what in (None, "corpora"):
        table = Table("corpus", "description", "licence", title="corpora, for `prepare`", title_justify="left")
        for corpora in (KNOWN, PAIR_CORPORA):
            for known in corpora.values():
                table.add_row(known.name, known.summary, known.licence)
        console.print(table)
    if options.what in (None, "engines"):
        table = Table("engine", "description", "covers", title="engines, preferred first", title_justify="left")
        for row in engines():
            covers = f"{row['compositions']}; device: {row['devices']}; {row['dtypes']}; auto: {row['auto']}"
            runs = "runs here" if row["available"] == "yes" else f"cannot run here: {row['available']}"
            table.add_row(row["name"], row["summary"], f"{covers}; {runs}")
        console.print(table)
    if options.what in (None, "experiments"):
        table = Table("experiment", "description", "in the paper", title="experiments", title_justify="left")
        for experiment in EXPERIMENTS.values():
            table.add_row(experiment.name, experiment.title, experiment.place)
        table.add_row(SPEED, "Speed of training and inference, measured by `bench`", "Table 5")
        for name, members in GROUPS.items():
            table.add_row(name, "all of them" if name == "all" else ", ".join(members), "-")
        console.print(table)
    if options.what == "fields":
        users: dict[type, list[str]] = {}
        for name, entry in TASKS.items():
            users.setdefault(type(entry.task), []).append(name)
        told = {kind: f"{kind.__name__} ({', '.join(names)})" for kind, names in users.items()}
        for kind, title in {**SECTIONS, **told}.items():
            table = Table("field", "default", "meaning", title=title, title_justify="left")
            inherited = {field.name for field in fields(TrainConfig)} if kind is ActConfig else set()
            for field in fields(kind):
                if field.name in inherited:
                    continue
                table.add_row(field.name, str(field.default), field.metadata.get("doc", ""))
            console.print(table)
        console.print(f"cores: {', '.join(CORES)}; memory compositions: {', '.join(COMPOSITIONS)}")
    return 0


COMMANDS = (Command("list", "list tasks, corpora, presets, engines, experiments, fields", HELP, add_arguments, run),)
