"""Tables in Markdown, made from records, and the places in a document that they fill.

A place is marked in the document, so that the text around it is written by people and the numbers are not:

    <!-- table:demo -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feedback_transformer.config import CORES
from feedback_transformer.training.record import read_record

PAPER_RANDOM_WALK = {"feedback": "100", "transformer": "68", "lstm": "not reported"}  # Table 1, accuracy in %


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---:|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(header) - 1), *lines[1:]])


def places(document: str) -> list[str]:
    """The names of its marked places.

    >>> places("<!-- table:goals -->\\n<!-- end -->")
    ['goals']
    """
    return re.findall(r"<!-- table:([\w-]+) -->\n", document)


def fill(document: str, tables: Mapping[str, str]) -> str:
    """The document with each marked place that has a table filled by it."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- table:{re.escape(name)} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        document = place.sub(lambda match, text=table: f"{match[1]}{text}\n{match[2]}", document)  # type: ignore[misc]
    return document


def random_walk_table(results: Path) -> str:
    """The demonstration's table, from `results/random-walk/*.json`, with the Feedback Transformer's other seeds."""
    folder = results / "random-walk"
    rows = [random_walk_row(core, read_record(folder / f"{core}-seed-0.json")) for core in CORES]
    for path in sorted(folder.glob("feedback-seed-[1-9]*.json")):
        record = read_record(path)
        name, *numbers = random_walk_row("feedback", record)
        rows.append([f"{name}, seed {record['run']['seed']}", *numbers])
    header = ["model", "parameters", "tokens", "minutes on one core", "accuracy, reduced (%)", "paper, full scale (%)"]
    return markdown_table(header, rows)


def random_walk_row(core: str, record: Mapping[str, Any]) -> list[str]:
    return [
        CORES[core],
        f"{record['parameters']:,}",
        f"{record['tokens']:,}",
        f"{record['cpu_seconds'] / 60:.1f}",
        f"{100 * record['test']['accuracy']:.1f}",
        PAPER_RANDOM_WALK[core],
    ]
