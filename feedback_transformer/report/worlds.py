"""Tables of the reinforcement-learning environments, from the record of `feedback-transformer bench --worlds`.

record = {
  "machine":   what `training.record.environment` returns, and the date,
  "settings":  {"repeats", "copies"},
  "worlds":    [{"world", "seconds", "steps_per_second"}],
  "bounds":    [{"world", "preset", "task", "oracle", "oracle_spread", "chance"}],
  "learning":  [{"shape", "contender", "seconds", "frames_per_second"}],
}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feedback_transformer.config import CORES
from feedback_transformer.report.speed import CPU_TIME, REFERENCE, Table, measured
from feedback_transformer.training.record import read_record


def world_tables(record: dict[str, Any]) -> list[Table]:
    """Steps per second of each environment; frames per second of learning, with the ratio to the Transformer."""
    worlds = [[row["world"], f"{row['steps_per_second']:,.0f}"] for row in record["worlds"]]
    speeds = {(row["shape"], row["contender"]): row["frames_per_second"] for row in record["learning"]}
    shapes = list(dict.fromkeys(row["shape"] for row in record["learning"]))
    rows = [
        [CORES[core], *(f"{speeds[s, core]:,.0f} ({speeds[s, core] / speeds[s, REFERENCE]:.2f}x)" for s in shapes)]
        for core in dict.fromkeys(row["contender"] for row in record["learning"])
    ]
    bounds = [
        [
            row["task"],
            row["preset"],
            f"{row['oracle']:.2f} ± {row['oracle_spread']:.2f}",
            f"{round(row['chance'], 2) + 0.0:.2f}",
        ]
        for row in record["bounds"]
    ]
    return [
        Table("Reward per episode", ["world", "preset", "oracle, mean and spread", "chance"], bounds),
        Table(f"Steps/s of {record['settings']['copies']:,} copies", ["world", "steps/s"], worlds),
        Table("A2C on maze navigation, frames/s", ["", *shapes], rows),
    ]


def about_worlds(record: dict[str, Any]) -> str:
    """How it was measured, and on what."""
    return f"{measured(record, CPU_TIME)}; in brackets the ratio to the Transformer."


def world_speed(path: Path) -> str:
    """All tables with the machine, in Markdown."""
    record = read_record(path)
    return "\n\n".join([about_worlds(record), *(table.markdown() for table in world_tables(record))])
