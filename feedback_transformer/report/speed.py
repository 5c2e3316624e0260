"""Speed, from the record of a benchmark: tables in Markdown and on the terminal, a chart.

record = {
  "machine":    what `training.record.environment` returns, and the date,
  "settings":   {"repeats", "steps", "shapes", "dropout"},
  "notes":      {contender: what it is},
  "skipped":    {contender: why it did not take part},
  "training":   [{"shape", "dropout", "shared_kv", "contender", "seconds", "tokens_per_second"}],
  "floor":      [{"shape", "shared_kv", "seconds", "tokens_per_second", "gigaflops"}],
  "memory":     [{"shape", "dropout", "shared_kv", "contender", "megabytes"}],
  "generation": [{"memory_size", "batch", "contender", "seconds", "tokens_per_second"}],
}
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from feedback_transformer.kernels import find
from feedback_transformer.report.tables import markdown_table

Record = dict[str, Any]
Row = dict[str, Any]
REFERENCE = "transformer"  # what ratios are relative to
CPU_TIME = "CPU time of "
ENGINES = ("native", "fused", "loop")


# -------------------------------------------------------------------------------------------------- tables


class Table(NamedTuple):
    """A title, the heads of the columns, and rows of text."""

    title: str
    heads: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        return f"**{self.title}**\n\n{markdown_table(self.heads, self.rows)}"


def tables(record: Record) -> list[Table]:
    """All tables of a record: numbers, each with its ratio to our Transformer in the same column."""
    made = []
    kinds = sorted({(row["dropout"], row["shared_kv"]) for row in record["training"]}, key=lambda k: (not k[1], -k[0]))
    for dropout, shared in kinds:
        kept = [row for row in record["training"] if row["dropout"] == dropout and row["shared_kv"] == shared]
        floors = [{**row, "contender": "floor"} for row in record["floor"] if row["shared_kv"] == shared]
        title = f"Training, tokens/s, dropout {dropout:g}" + ("" if shared else ", keys and values per layer")
        made.append(_table(title, kept + floors, "tokens_per_second", lambda row: str(row["shape"])))
    made.append(
        _table("Peak extra memory of a training step, MB", record["memory"], "megabytes",
               lambda row: f"{row['shape']}{'' if row['shared_kv'] else ', per layer'}")
    )  # fmt: skip
    made.append(
        _table("Generation, tokens/s", record["generation"], "tokens_per_second",
               lambda row: f"S{row['memory_size']} B{row['batch']}")
    )  # fmt: skip
    return [table for table in made if table.rows]


def _table(title: str, rows: list[Row], value: str, column: Callable[[Row], str]) -> Table:
    numbers = {(row["contender"], column(row)): float(row[value]) for row in rows}
    columns = list(dict.fromkeys(column(row) for row in rows))
    names = list(dict.fromkeys(row["contender"] for row in rows))

    def cell(name: str, head: str) -> str:
        number, reference = numbers.get((name, head)), numbers.get((REFERENCE, head))
        if number is None:
            return ""
        return f"{number:,.0f}" + (f" ({number / reference:.2f}x)" if reference else "")

    return Table(title, ["", *columns], [[name, *(cell(name, head) for head in columns)] for name in names])


def summary_tables(record: Record) -> list[Table]:
    """The tables of README.md: training at the first dropout rate, its memory, and generation."""
    left_out = ("dropout 0,", "per layer")
    return [table for table in tables(record) if not any(words in f"{table.title}," for words in left_out)]


def speed_summary(record: Record) -> str:
    return speed_tables(record, summary_tables(record))


def measured(record: Record, clock: str = "") -> str:
    """How it was measured, and on what; `clock` says what counted with one thread, if not the time that passed."""
    about, repeats = record["machine"], record["settings"]["repeats"]
    threads = f"{about['threads']} threads" if about["threads"] > 1 else f"{clock}1 thread"
    return (
        f"Measured in one run, contenders taking turns, best of {repeats}: {about['processor']}, {threads}, "
        f"torch {about['torch']}, float32, commit {str(about['commit'])[:9]}"
    )


def about_speed(record: Record) -> str:
    return (
        f"{measured(record)}. d: width, L: layers, S: memories, B: rows; "
        f"T = {record['settings']['steps']} steps per block (16 for the random walk, as in the demo), full memory, "
        "forward and backward; in brackets the ratio to our Transformer."
    )


def speed_tables(record: Record, chosen: list[Table] | None = None) -> str:
    """All tables, or the chosen ones, with the machine they were measured on."""
    parts = [
        about_speed(record),
        *(table.markdown() for table in (tables(record) if chosen is None else chosen)),
        "\n".join(["The rows:", "", *(f"- `{name}`: {note}" for name, note in notes(record).items())]),
    ]
    if record["skipped"]:
        parts.append("Not measured: " + "; ".join(f"`{k}` ({why})" for k, why in record["skipped"].items()) + ".")
    return "\n\n".join(parts)


def notes(record: Record) -> dict[str, str]:
    """What each contender is; our engines as they are described today, the others as the record describes them."""
    known = {name: f"Feedback Transformer, {find(name).summary}" for name in ENGINES}
    floor = "the matrix products of a training step alone, at the best rate torch reaches for any of them"
    return {**{name: known.get(name, note) for name, note in record["notes"].items()}, "floor": floor}


# --------------------------------------------------------------------------------------------------- chart

COLOURS = {
    "native": "#1b6ca8", "fused": "#4f9bd0", "loop": "#a9cfe9", "transformer": "#d9822b", "lstm": "#8c8c8c",
    "lucidrains": "#b8a9d9", "labml": "#d6cdea",
}  # fmt: skip


def draw_chart(record: Record, path: Path) -> bool:
    """Training speed as bars, one panel per shape, at the record's first dropout rate; the floor as a dashed line.

    Returns whether there was anything to draw.
    """
    from matplotlib import pyplot as plt  # slow to import

    dropout = record["settings"]["dropout"][0]
    rows = [row for row in record["training"] if row["shared_kv"] and row["dropout"] == dropout]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    if not shapes:
        return False
    figure, panels = plt.subplots(1, len(shapes), figsize=(3.4 * len(shapes) + 0.6, 3.6), squeeze=False)
    for panel, shape in zip(panels[0], shapes, strict=True):
        here = [row for row in rows if row["shape"] == shape and row["contender"] != "lstm"]
        names = [row["contender"] for row in here]
        speeds = [row["tokens_per_second"] for row in here]
        bars = panel.bar(names, speeds, color=[COLOURS.get(name, "#999999") for name in names])
        panel.bar_label(bars, labels=[f"{speed:,.0f}" for speed in speeds], fontsize=8, padding=2)
        floor = [row["tokens_per_second"] for row in record["floor"] if row["shape"] == shape and row["shared_kv"]]
        for level in floor:
            panel.axhline(level, color="#444444", linestyle="--", linewidth=1)
            panel.text(len(names) - 0.5, level, "products alone", fontsize=8, ha="right", va="bottom")
        panel.set_ylim(0, max([*speeds, *floor]) * 1.14)
        panel.set_title(shape, fontsize=10)
        panel.tick_params(axis="x", rotation=40, labelsize=8)
        panel.tick_params(axis="y", labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("training tokens/s")
    threads = record["machine"]["threads"]
    title = f"{record['machine']['processor']}, {threads} thread{'s' if threads > 1 else ''}, dropout {dropout:g}"
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True
