"""Several experiments in one table, as the paper has its toy tasks: a row a score, a column a model."""

from __future__ import annotations

from pathlib import Path

from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.report.experiments import Outcome, show
from feedback_transformer.report.tables import markdown_table

SUITES = ("toy-tasks", "state-tracking")


def suite_table(name: str, results: Path) -> str:
    """The models that all experiments of the group share, ours and, where it gives one, the paper's number."""
    outcomes = [Outcome(EXPERIMENTS[one], "laptop", results) for one in GROUPS[name]]
    labels = [[variant.label for variant in outcome.variants] for outcome in outcomes]
    shared = [label for label in labels[0] if all(label in own for own in labels)]
    rows = []
    for outcome in outcomes:
        variants = {variant.label: variant for variant in outcome.variants}
        for score in outcome.scores:
            cells = [f"{outcome.experiment.name}, {score}"]
            for label in shared:
                found, paper = outcome.score(variants[label].key, score), variants[label].published(score)
                ours = show(found) if found else "not run"
                cells.append(ours if paper is None else f"{ours} ({paper:g})")
            rows.append(cells)
    return markdown_table(["task, score", *shared], rows)
