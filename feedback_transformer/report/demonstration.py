"""The demo's table: three models on the random walk, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feedback_transformer.config import CORES
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Variant
from feedback_transformer.report.tables import markdown_table

# The rows of the experiment `random-walk`. The paper's Transformer has 4 layers, the demo's 2.
RANDOM_WALK: dict[str, Variant] = {v.key: v for v in EXPERIMENTS["random-walk"].variants("laptop")}
PAPER = {"feedback": "random-walk/feedback", "transformer": "random-walk/transformer-4", "lstm": "random-walk/lstm"}


def random_walk_table(results: Path) -> str:
    """From the records, with the Feedback Transformer's other seeds."""
    records = {core: RANDOM_WALK[f"random-walk/{core}"].records(results) for core in CORES}
    rows = [random_walk_row(core, own[0]) for core, own in records.items() if own]
    for record in records["feedback"][1:]:
        name, *numbers = random_walk_row("feedback", record)
        rows.append([f"{name}, seed {record['run']['seed']}", *numbers])
    header = ["model", "parameters", "tokens", "minutes on one core", "accuracy, reduced (%)", "paper, full scale (%)"]
    return markdown_table(header, rows)


def random_walk_row(core: str, record: Mapping[str, Any]) -> list[str]:
    paper = RANDOM_WALK[PAPER[core]]
    published = paper.published("accuracy")
    unlike = "" if PAPER[core] == f"random-walk/{core}" else f" ({paper.run.model.num_layers} layers)"
    return [
        CORES[core],
        f"{record['parameters']:,}",
        f"{record['tokens']:,}",
        f"{record['cpu_seconds'] / 60:.1f}",
        f"{100 * record['test']['accuracy']:.1f}",
        "not reported" if published is None else f"{100 * published:g}{unlike}",
    ]
