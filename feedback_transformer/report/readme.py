"""`make readme`: the tables of README.md and docs/, the experiments' figures and their pages, from the records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feedback_transformer.experiments import EXPERIMENTS, SUITES
from feedback_transformer.experiments.speed import speed_rows
from feedback_transformer.report.costs import HEADS, cost_rows
from feedback_transformer.report.demonstration import random_walk_table
from feedback_transformer.report.experiment_figures import draw_all, experiment_table
from feedback_transformer.report.experiment_pages import verdict_table, write_pages
from feedback_transformer.report.goals import goal_table
from feedback_transformer.report.language import paper_models_table
from feedback_transformer.report.page import RULES
from feedback_transformer.report.spans import span_table
from feedback_transformer.report.speed import speed_summary, speed_tables
from feedback_transformer.report.suites import suite_table, toy_goals
from feedback_transformer.report.tables import fill, markdown_table, places
from feedback_transformer.report.tally import verdict_count
from feedback_transformer.report.whole_models import LANGUAGE, TRANSLATION, whole_model_speed
from feedback_transformer.report.worlds import world_speed
from feedback_transformer.training.record import read_record

Record = dict[str, Any]


def filled(document: str, results: Path) -> str:
    """The document with its tables filled from the records."""

    def bench() -> Record:
        return read_record(results / "bench.json")

    makers: dict[str, Callable[[], str]] = {
        "demo": lambda: random_walk_table(results),
        "speed": lambda: speed_tables(bench()),
        "speed-summary": lambda: speed_summary(bench()),
        "goals": lambda: goal_table(bench(), read_record(results / "bench-2-threads.json")),
        "toy-goals": lambda: toy_goals(results),
        "spans": lambda: span_table(read_record(results / "span.json")),
        "worlds": lambda: world_speed(results / "bench-worlds.json"),
        "verdicts": lambda: verdict_table(results),
        "verdict-rules": lambda: RULES,
        "verdict-count": lambda: verdict_count(results),
        "paper-models": paper_models_table,
        "language-speed": lambda: whole_model_speed(results / "speed-wikitext-103-small.json", LANGUAGE),
        "translation-speed": lambda: whole_model_speed(results / "speed-translation.json", TRANSLATION),
        "paper-costs": lambda: markdown_table(HEADS, cost_rows(results / "paper")),
        "paper-speed": lambda: markdown_table(*speed_rows(results)),
        **{name: functools.partial(suite_table, name, results) for name in SUITES},
        **{name: functools.partial(experiment_table, name, results) for name in EXPERIMENTS},
    }
    return fill(document, {name: makers[name]() for name in places(document)})


def main() -> None:
    """Rewrite the documents of the project in the current folder."""
    for path in [Path("README.md"), *Path("docs").glob("*.md")]:
        path.write_text(filled(path.read_text(encoding="utf-8"), Path("results")), encoding="utf-8")
    draw_all(Path("results"))
    write_pages(Path("results"))


if __name__ == "__main__":
    main()
