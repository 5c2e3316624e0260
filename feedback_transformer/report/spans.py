"""What short spans save, from the record of `feedback-transformer bench --spans`: a table and a chart.

record = {"machine", "settings": {"shape", "memory_size", "steps", "repeats"}, "notes", "skipped",
          "spans": [{"case", "span", "long_heads", "contender", "seconds", "microseconds_a_token", "megabytes",
                     "kilobytes_a_token"}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feedback_transformer.report.speed import COLOURS, CPU_TIME, Table, measured

Record = dict[str, Any]
VALUES = {"microseconds_a_token": "µs", "kilobytes_a_token": "kB"}


def table(record: Record) -> Table:
    """One row per case: each contender's time and peak memory per token."""
    rows = record["spans"]
    names = list(dict.fromkeys(row["contender"] for row in rows))
    numbers = {(row["case"], row["contender"]): row for row in rows}
    heads = [f"{name}, {unit}" for unit in VALUES.values() for name in names]
    return Table(
        f"Training, per token: time and peak extra memory, spans up to {record['settings']['memory_size']:,}",
        ["span of every head", *heads],
        [
            [case, *(f"{numbers[case, name][value]:,.0f}" for value in VALUES for name in names)]
            for case in dict.fromkeys(row["case"] for row in rows)
        ],
    )


def span_table(record: Record) -> str:
    """The table as Markdown, with what it was measured on."""
    settings = record["settings"]
    return (
        f"{table(record).markdown()}\n\n"
        f"{measured(record, CPU_TIME)}; "
        f"{settings['shape']}, blocks of {settings['steps']} steps, full memory, forward and backward, no dropout."
    )


def draw_chart(record: Record, path: Path) -> bool:
    """Time and memory per token over the span, on logarithmic axes; the case of one long head as a separate point."""
    from matplotlib import pyplot as plt  # slow to import

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    rows = record["spans"]
    for panel, value, label in zip(panels, VALUES, ("time, µs per token", "peak memory, kB per token"), strict=True):
        for name in dict.fromkeys(row["contender"] for row in rows):
            own = [row for row in rows if row["contender"] == name]
            alike = [row for row in own if not row["long_heads"]]
            style = {"color": COLOURS.get(name, "#999999")}
            panel.plot([r["span"] for r in alike], [r[value] for r in alike], "o-", label=name, **style)
            for row in own:
                if row["long_heads"]:
                    panel.plot(record["settings"]["memory_size"], row[value], "*", markersize=13, **style)
        ticks = sorted({row["span"] for row in rows})
        panel.set(xscale="log", yscale="log", xlabel="span of every head, steps", ylabel=label)
        panel.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].plot([], [], "*", color="#444444", markersize=11, label=f"one head sees all, the others {ticks[0]}")
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(f"{record['settings']['shape']}, {record['machine']['processor']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True
