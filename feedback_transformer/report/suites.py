"""Several experiments in one table, as the paper has its toy tasks: a row a score, a column a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.report.experiments import Outcome, show
from feedback_transformer.report.tables import markdown_table

SUITES = ("toy-tasks", "state-tracking")


def suite_table(name: str, results: Path) -> str:
    """The models that all experiments of the group share or the paper has: ours and, where it gives one, its number."""
    outcomes = [Outcome(EXPERIMENTS[one], "laptop", results) for one in GROUPS[name]]
    counts = Counter(variant.label for outcome in outcomes for variant in outcome.variants)
    published = {variant.label for outcome in outcomes for variant in outcome.variants if variant.paper is not None}
    shown = [label for label, count in counts.items() if count == len(outcomes) or label in published]
    rows = []
    for outcome in outcomes:
        variants = {variant.label: variant for variant in outcome.variants}
        for score in outcome.scores:
            cells = [f"{outcome.experiment.name}, {score}"]
            for label in shown:
                if label not in variants:
                    cells.append("-")
                    continue
                found, paper = outcome.score(variants[label].key, score), variants[label].published(score)
                ours = show(found) if found else "not run"
                cells.append(ours if paper is None else f"{ours} ({paper:g})")
            rows.append(cells)
    return markdown_table(["task, score", *shown], rows)
