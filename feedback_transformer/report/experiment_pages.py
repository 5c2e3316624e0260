"""One Markdown page per experiment, generated from its file and its records: docs/experiments/NAME.md.

Nothing on these pages is written by hand, so they stay correct; remarks on an experiment go into its file.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Experiment, Record, Variant, train_command
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.tables import markdown_table

FOLDER = Path("docs/experiments")
ROOT = "../.."  # from there


def experiment_pages(results: Path) -> dict[str, str]:
    """The text of every page, by file name."""
    return {f"{name}.md": experiment_page(experiment, results) for name, experiment in EXPERIMENTS.items()}


def experiment_page(experiment: Experiment, results: Path) -> str:
    outcome = Outcome(experiment, "laptop", results)
    module = inspect.getmodule(experiment.variants)
    assert module is not None
    assert module.__doc__ is not None
    file = f"feedback_transformer/experiments/{module.__name__.rpartition('.')[2]}.py"
    figure = f"![{experiment.title}]({ROOT}/results/{experiment.name}.svg)"
    command = f"    feedback-transformer reproduce {experiment.name}"
    paper = f"\n{command} --scale paper     the published hyperparameters" if experiment.variants("paper") else ""
    parts = [
        f"# {experiment.title}",
        f"Generated from [{file}]({ROOT}/{file}) and its records by `make readme`. All experiments: "
        "[results.md](../results.md).",
        f"{experiment.place_in_words} Verdict: **{outcome.overall()}**.",
        module.__doc__.strip(),
        f"{command} --plan            what would be run, and what it costs\n"
        f"{command} --jobs 2          train what has no record yet, two runs at a time\n"
        f"{command} --scale smoke     takes seconds: does it run?{paper}",
        outcome.markdown(),
        *([figure] if any(outcome.records.values()) else []),
        "## The runs",
        "Each command trains one run; change `--seed` for another seed. A record holds the configuration, commit,\n"
        "machine, cost, learning curve and scores.",
        markdown_table(
            ["run", "command", "records, by seed"], [_run(v, outcome.records[v.key]) for v in outcome.variants]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _run(variant: Variant, records: list[Record]) -> list[str]:
    seeds = [record["run"]["seed"] for record in records]
    links = [f"[{seed}]({ROOT}/results/{variant.key}-seed-{seed}.json)" for seed in seeds]
    return [variant.label, f"`{train_command(variant.run, 'laptop')}`", " ".join(links) or "none yet"]


def write_pages(results: Path, folder: Path = FOLDER) -> None:
    """Write all pages and delete any others."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = experiment_pages(results)
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text)


def verdict_table(results: Path) -> str:
    """One row per experiment, for a page in docs/."""
    outcomes = [Outcome(experiment, "laptop", results) for experiment in EXPERIMENTS.values()]
    rows = [
        [
            f"[{outcome.experiment.title}](experiments/{outcome.experiment.name}.md)",
            outcome.experiment.place,
            f"{outcome.cost_hours():.1f}",
            outcome.overall(),
        ]
        for outcome in outcomes
    ]
    return markdown_table(["experiment", "in the paper", "core-hours", "verdict"], rows)
