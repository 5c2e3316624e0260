"""What `reproduce` still has to run, and its cost: from records of the same variant, or from a few updates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from feedback_transformer.data.corpora import DataError
from feedback_transformer.experiments.costing import keep_cost, known_costs, measured_cost, recorded_minutes
from feedback_transformer.experiments.experiment import Experiment, Variant, kept_record
from feedback_transformer.report.experiments import reduction
from feedback_transformer.training.run import RunConfig

ALL_DONE = "Every run has a record. What they cost again, and to make them again: name a new folder with --results."
RESULTS = Path("results")  # the records that come with the project, if this is its folder


class Missing(NamedTuple):
    """A variant with runs to be done: how many, and minutes on one core for each, if known."""

    variant: Variant
    runs: int
    minutes: float | None = None
    known_by: str = "-"

    def measured(self, results: Path) -> Missing:
        """With the cost estimated from a few updates, where nothing tells it; it is kept for the next plan."""
        if self.minutes is not None:
            return self
        try:
            cost = measured_cost(self.variant.run)
        except DataError as error:
            return self._replace(known_by=f"{error}")
        keep_cost(self.variant, cost, results)
        return self._replace(minutes=cost.minutes, known_by=cost.known_by())


def missing_variants(experiments: list[Experiment], scale: str, seeds: int | None, results: Path) -> list[Missing]:
    """The variants with missing runs; those that experiments share appear once."""
    variants = {variant.key: variant for experiment in experiments for variant in experiment.variants(scale)}
    found, costs = [], known_costs(variants.values(), results)
    for variant in variants.values():
        undone = sum(kept_record(results, key, run) is None for key, run in variant.runs(seeds).items())
        if undone:
            minutes, cost = recorded_minutes(variant, results), costs.get(variant.key)
            known_by = "records of other seeds"
            if minutes is None and results != RESULTS:
                minutes, known_by = recorded_minutes(variant, RESULTS), f"records in {RESULTS}"
            row = Missing(variant, undone, minutes, "-" if minutes is None else known_by)
            if minutes is None and cost is not None:
                row = Missing(variant, undone, cost.minutes, cost.known_by())
            found.append(row)
    return found


def show_plan(
    experiments: list[Experiment], scale: str, missing: list[Missing], console: Console, every_variant: bool
) -> None:
    """Print the runs without a record and their total cost; on request the cost of every variant."""
    wanted = {row.variant.key for row in missing}
    undone = [one for one in experiments if wanted & {variant.key for variant in one.variants(scale)}]
    for experiment in undone or experiments:
        console.print(f"[bold]{experiment.title}[/bold] ({experiment.place})", highlight=False)
        if scale != "paper":
            console.print(reduction(experiment, scale), highlight=False)
        if prepare := experiment.prepare_command(scale):
            lost = missing_data(variant.run for variant in experiment.variants(scale) if variant.key in wanted)
            console.print(f"Data: {prepare}{' (its data is not there yet)' if lost else ''}", highlight=False)
    if every_variant and missing:
        table = Table("variant", "runs", "per run", "estimated from", title="To do", title_justify="left")
        for row in missing:
            cost = "unknown" if row.minutes is None else spell_minutes(row.minutes)
            table.add_row(row.variant.key, str(row.runs), cost, row.known_by)
        console.print(table)
    known = [row.runs * row.minutes for row in missing if row.minutes is not None]
    unknown = sum(row.runs for row in missing if row.minutes is None)
    told = [f"about {spell_minutes(sum(known))} on one core"] if known else []
    untried = any(row.minutes is None and row.known_by == "-" for row in missing)
    told += [f"{unknown} of unknown cost{' (--measure times a few updates)' * untried}"] if unknown else []
    runs = sum(row.runs for row in missing)
    without = "1 run has" if runs == 1 else f"{runs} runs have"
    console.print(f"{without} no record yet: {' and '.join(told)}." if runs else ALL_DONE)


def missing_data(runs: Iterable[RunConfig]) -> DataError | None:
    """Why these runs cannot start, if their data is missing."""
    try:
        for run in {run.task_name: run for run in runs}.values():
            run.task.fingerprints()
    except DataError as error:
        return error
    return None


def spell_minutes(minutes: float) -> str:
    """In a readable unit.

    >>> spell_minutes(12.34), spell_minutes(500), spell_minutes(100_000)
    ('12.3 minutes', '8.3 hours', '69.4 days')
    """
    if minutes < 120:
        return f"{minutes:.1f} minutes"
    return f"{minutes / 60:.1f} hours" if minutes < 5_000 else f"{minutes / 1440:.1f} days"
