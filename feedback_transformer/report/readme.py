"""Fill the tables of README.md and docs/ from the records, and draw the experiments' figures: `make readme`."""

from __future__ import annotations

from pathlib import Path

from feedback_transformer.experiments.speed import speed_rows
from feedback_transformer.report.experiments import draw_all, experiment_tables
from feedback_transformer.report.goals import goal_table
from feedback_transformer.report.language import language_speed, paper_models_table
from feedback_transformer.report.spans import span_table
from feedback_transformer.report.speed import speed_summary, speed_tables
from feedback_transformer.report.suites import SUITES, suite_table
from feedback_transformer.report.tables import fill, markdown_table, random_walk_table
from feedback_transformer.report.worlds import world_speed
from feedback_transformer.training.record import read_record


def filled(document: str, results: Path) -> str:
    """The document with its tables as the records have them."""
    bench, two_threads = (read_record(results / name) for name in ("bench.json", "bench-2-threads.json"))
    tables = {
        "demo": random_walk_table(results),
        "speed": speed_tables(bench),
        "speed-summary": speed_summary(bench),
        "goals": goal_table(bench, two_threads),
        "spans": span_table(read_record(results / "span.json")),
        "worlds": world_speed(results / "bench-worlds.json"),
        **experiment_tables(results),
        "paper-speed": markdown_table(*speed_rows(results)),
        **{name: suite_table(name, results) for name in SUITES},
        "paper-models": paper_models_table(),
        "language-speed": language_speed(results / "speed-wikitext-103-small.json"),
    }
    return fill(document, tables)


def main() -> None:
    """Rewrite the documents of the project in the current folder."""
    for path in [Path("README.md"), *Path("docs").glob("*.md")]:
        path.write_text(filled(path.read_text(), Path("results")))
    draw_all(Path("results"))


if __name__ == "__main__":
    main()
