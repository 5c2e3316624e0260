"""Table 5: training and inference speed, Feedback relative to the Transformer; nothing is trained for it.

Our numbers come from the records of `bench`, where both take turns in one run. The paper measures on GPUs and we on
one CPU core: ratios can be compared, speeds cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.training.record import read_record

Pair = tuple[float, float]  # Feedback, Transformer


class Speed(NamedTuple):
    """A row: the paper's two speeds, and where to find ours in a benchmark record."""

    task: str
    paper: Pair  # words (or frames) per second
    option: str  # of `bench`
    part: str  # of its record
    shape: str  # of ours
    wanted: Mapping[str, object] = {}  # values that select the rows of that part
    rate: str = "tokens_per_second"

    def date(self, results: Path) -> str:
        """When it was measured; rows measured earlier may be of older code."""
        path = results / RECORDS[self.option]
        return str(read_record(path)["machine"]["date"])[:10] if path.exists() else "-"

    def here(self, results: Path) -> Pair | None:
        """Our two speeds, or None if not measured."""
        if not (path := results / RECORDS[self.option]).exists():
            return None
        rows = [row for row in read_record(path)[self.part] if self.wanted.items() <= row.items()]
        rates = {row["contender"]: float(row[self.rate]) for row in rows}
        return (rates["feedback"], rates["transformer"]) if "feedback" in rates else None


# Words per second in training and at inference.
PAPER = {
    "language": {"feedback": (84_400, 2_176), "transformer": (296_000, 592)},
    "translation": {"feedback": (126_000, 5_410), "transformer": (280_000, 3_190)},
}


def paper(task: str, place: int) -> Pair:
    return PAPER[task]["feedback"][place], PAPER[task]["transformer"][place]


FRAMES = (22_300, 22_300)  # per second, of both models, in maze navigation
SHALLOW = 4.2  # times as fast with 1 decoder layer as with 6 (Section 4.2.1)

# The benchmarks that the table is made from, by the option of `bench`.
RECORDS = {
    "--language": "speed-wikitext-103-small.json",
    "--translation": "speed-translation.json",
    "--worlds": "bench-worlds.json",
}
SHAPE = "WikiText-103 small, whole model"
WORLD = "paper's model, 64 copies"
SPEEDS = (
    Speed("language modelling, training", paper("language", 0), "--language", "training", f"{SHAPE}, B 8"),
    Speed("language modelling, inference", paper("language", 1), "--language", "generation", f"{SHAPE}, B 1",
          {"batch": 1}),
    Speed("language modelling, inference", paper("language", 1), "--language", "generation", f"{SHAPE}, B 32",
          {"batch": 32}),
    Speed("translation, training", paper("translation", 0), "--translation", "training",
          "6 encoder and 2 decoder layers"),
    Speed("translation, inference", paper("translation", 1), "--translation", "generation", "the same, beam 5, B 1",
          {"batch": 1}),
    Speed("translation, inference", paper("translation", 1), "--translation", "generation", "the same, beam 5, B 32",
          {"batch": 32}),
    Speed("reinforcement learning, training", FRAMES, "--worlds", "learning", WORLD, {"shape": WORLD},
          "frames_per_second"),
)  # fmt: skip


def speed_rows(results: Path) -> tuple[list[str], list[list[str]]]:
    """The header and one row per speed: the ratios, and what was measured."""
    header = ["Feedback / Transformer", "paper", "here", "Feedback, per second", "shape", "command", "measured"]
    rows = []
    for speed in SPEEDS:
        found = speed.here(results)
        ours = ["not run", "-"] if found is None else [f"{found[0] / found[1]:.2f}", f"{found[0]:,.0f}"]
        paper = f"{speed.paper[0] / speed.paper[1]:.2f}"
        rows.append(
            [speed.task, paper, *ours, speed.shape, f"`feedback-transformer bench {speed.option}`", speed.date(results)]
        )
    return header, rows
