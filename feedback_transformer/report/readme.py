"""Fill the tables of README.md and docs/ from the records: `make readme`."""

from __future__ import annotations

from pathlib import Path

from feedback_transformer.report.tables import fill, random_walk_table


def filled(document: str, results: Path) -> str:
    """The document with its tables as the records have them."""
    return fill(document, {"random-walk": random_walk_table(results)})


def main() -> None:
    """Rewrite the documents of the project in the current folder."""
    for path in [Path("README.md"), *Path("docs").glob("*.md")]:
        path.write_text(filled(path.read_text(), Path("results")))


if __name__ == "__main__":
    main()
