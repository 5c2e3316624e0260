"""Run an experiment of the paper: train what has no record yet, then show its table, claims and figure."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from feedback_transformer.commands import bench
from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import check_device, positive_number
from feedback_transformer.commands.plan import missing_data, missing_variants, show_plan
from feedback_transformer.config import ConfigError, nearest
from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.experiments.experiment import Experiment, kept_record, refuse_other_record, train_command
from feedback_transformer.experiments.running import FAILED, INTERRUPTED, Job, finished_record, train_all
from feedback_transformer.experiments.speed import RECORDS, speed_rows
from feedback_transformer.report.experiment_figures import draw
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.training.checkpoint import make_folder, write_json
from feedback_transformer.training.run import RunConfig

SCALES = ("smoke", "laptop", "paper")
SPEED = "speed"  # trains nothing: its records come from `bench`
HELP = """\
examples:
  feedback-transformer reproduce memory-composition --plan
  feedback-transformer reproduce depth --jobs 2
  feedback-transformer reproduce all --seeds 1
  feedback-transformer reproduce toy-tasks --measure
  feedback-transformer reproduce random-walk --scale paper --measure
  feedback-transformer reproduce speed

Trains the runs that have no record yet, each on one core, and keeps every record as soon as it is finished; if
stopped, the next call continues. Then it prints the table beside the paper's numbers, says which of the paper's claims
held, and draws the figure. --plan only lists the runs without a record, with their cost estimated from the records of
other seeds; --measure also estimates the cost of runs without such records, from a few updates. Corpora are expected in
data/CORPUS, where `feedback-transformer prepare CORPUS` puts them.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "experiment", help="one of `feedback-transformer list experiments`, or toy-tasks, state-tracking, speed, all"
    )
    sub.add_argument("--scale", default="laptop", help="smoke, laptop or paper (laptop)")
    sub.add_argument("--seeds", type=positive_number, help="number of seeds (as many as our records have)")
    sub.add_argument("--jobs", type=positive_number, default=1, help="trainings to run at a time (1)")
    sub.add_argument("--device", default="cpu", help="where they run: cpu, cuda, cuda:1, mps (cpu)")
    sub.add_argument("--threads", type=positive_number, default=1, help="CPU threads of each (1)")
    sub.add_argument("--plan", action="store_true", help="only list the runs to do, with their cost from records")
    sub.add_argument(
        "--measure", action="store_true", help="like --plan, but time two updates where no record gives the cost"
    )
    sub.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the trainings (runs)")
    sub.add_argument("--results", type=Path, help="folder for records and figures (results)")


def run(options: argparse.Namespace) -> int:
    """The command."""
    scale, seeds, results = options.scale, options.seeds, results_folder(options)
    if options.experiment == SPEED:
        return measure_speed(scale, results, options.plan or options.measure, Console())
    chosen = choose(options.experiment)
    if not any(experiment.variants(scale) for experiment in chosen):
        raise ConfigError(f"{options.experiment} has no runs at the scale {scale!r}; choose another --scale")
    console, only_plan = Console(), options.plan or options.measure
    missing = missing_variants(chosen, scale, seeds, results)
    if options.measure:
        missing = [row.measured(results) for row in missing]
    show_plan(chosen, scale, missing, console, only_plan)
    code = 0 if only_plan else reproduce(chosen, results, options, console)
    if options.experiment == "all" and code != INTERRUPTED:
        measure_speed(scale, results, only_plan, console)
    return code


def measure_speed(scale: str, results: Path, only_plan: bool, console: Console) -> int:
    """Table 5: run the benchmarks that have no record yet (minutes on one core), or tiny ones at the scale smoke."""
    for option, record in RECORDS.items():
        if (results / record).exists():
            continue
        words = [*option.split(), *(["--quick"] if scale == "smoke" else []), "--out", str(results / record)]
        console.print(f"{'to be measured' if only_plan else 'measuring'}: bench {shlex.join(words)}", highlight=False)
        if not only_plan:
            parser = argparse.ArgumentParser()
            bench.add_arguments(parser)
            bench.run(parser.parse_args(words))
    title = "Speed: Table 5" + (", tiny models, to check that it runs" if scale == "smoke" else "")
    header, rows = speed_rows(results)
    show_table(title, header[:5], [row[:5] for row in rows], console)  # what fits a terminal
    return 0


def results_folder(options: argparse.Namespace) -> Path:
    """The folder of the records: --results, or the scale's own."""
    if options.scale not in SCALES:
        raise ConfigError(f"there is no scale {options.scale!r}{nearest(options.scale, SCALES)}")
    folder: Path = options.results or Path("results" if options.scale == "laptop" else f"results/{options.scale}")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--results = {folder} is a file; name a folder for the records")
    return folder


def without_data(chosen: list[Experiment], scale: str, seeds: int | None, work: Mapping[str, Job]) -> dict[str, str]:
    """Runs that cannot start because their data is missing, with the message, once per experiment."""
    lost: dict[str, str] = {}
    for experiment in chosen:
        own = [key for key in experiment.runs(scale, seeds) if key in work]
        if error := missing_data(work[key].run for key in own):
            known = experiment.prepare_command(scale)
            lost |= dict.fromkeys(own, f"{experiment.name} is skipped: {error}. For this experiment: {known}")
    return lost


def reproduce(chosen: list[Experiment], results: Path, options: argparse.Namespace, console: Console) -> int:
    """Train what has no record yet, then show the results; returns the exit code."""
    scale, device = options.scale, check_device(options.device)
    make_folder(results)  # where records cannot be kept, training would be in vain
    runs = {key: run for key, run in wanted(chosen, scale, options.seeds).items() if not kept_record(results, key, run)}
    folder = options.runs / f"reproduce-{scale}"
    work = {key: Job(key, run, folder / key, train_command(run, scale)) for key, run in runs.items()}

    def keep(key: str) -> None:
        record = finished_record(work[key])
        assert record is not None, "a training that ends well has a record"
        (results / key).parent.mkdir(parents=True, exist_ok=True)
        write_json(results / f"{key}.json", record)

    lost = without_data(chosen, scale, options.seeds, work)
    for key, job in list(work.items()):
        try:
            refuse_other_record(results, key, job.run)
            done = finished_record(job) is not None
        except ConfigError as error:
            lost[key] = f"{key} is skipped: {error}"
            continue
        if done:
            keep(key)
            lost.pop(key, None)
            del work[key]
    for sentence in dict.fromkeys(lost.values()):
        print(f"feedback-transformer: {sentence}", file=sys.stderr)
    work = {key: job for key, job in work.items() if key not in lost}
    code = train_all(work, options.jobs, console, keep, device, options.threads) if work else 0
    for experiment in chosen:
        show(experiment, scale, results, console)
    return code or (FAILED if lost else 0)


def choose(name: str) -> list[Experiment]:
    """An experiment, or a group of them."""
    if name in GROUPS:
        return [EXPERIMENTS[one] for one in GROUPS[name]]
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment {name!r}{nearest(name, [*EXPERIMENTS, *GROUPS, SPEED])}")
    return [EXPERIMENTS[name]]


def wanted(experiments: list[Experiment], scale: str, seeds: int | None) -> dict[str, RunConfig]:
    """The runs of this many seeds, or of the planned ones; every variant's first seed before any second one."""
    runs = {key: run for experiment in experiments for key, run in experiment.runs(scale, seeds).items()}
    return dict(sorted(runs.items(), key=lambda item: item[1].seed))


def show_table(title: str, header: list[str], rows: list[list[str]], console: Console) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in zip(header, *rows, strict=True):
        words = [word for cell in column for word in cell.split()]
        table.add_column(column[0], overflow="fold", min_width=min(12, max(map(len, words))))
    for row in rows:
        table.add_row(*(cell.replace("`", "") for cell in row))
    console.print(table)


def show(experiment: Experiment, scale: str, results: Path, console: Console) -> None:
    outcome = Outcome(experiment, scale, results)
    header, rows = outcome.rows()
    show_table(experiment.title, header, rows, console)
    for answer in outcome.claims():
        numbers = f" ({answer.here})" if answer.here else ""
        console.print(Padding(f"{outcome.asked(answer)}: {answer.verdict}{numbers}", (0, 0, 0, 2)), highlight=False)
    picture = results / f"{experiment.name}.svg"
    if draw(outcome, picture):
        console.print(f"Picture: {picture}")


COMMANDS = (Command("reproduce", "run an experiment of the paper: table, verdicts, figure", HELP, add_arguments, run),)
