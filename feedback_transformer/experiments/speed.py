"""Table 5: training and inference speed, Feedback over Transformer; nothing is trained for it.

Ours come from the records of `bench`, where both take turns in one run. The paper measures on GPUs, we on a core:
ratios can be compared, speeds cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.training.record import read_record

Pair = tuple[float, float]  # Feedback, Transformer


class Speed(NamedTuple):
    """A row: the paper's two speeds, and how a folder of records tells ours."""

    task: str
    paper: Pair  # words a second, or frames
    here: Callable[[Path], Pair | None]
    shape: str  # of ours
    command: str  # that makes the record


def bench(name: str, part: str, rate: str, **wanted: object) -> Callable[[Path], Pair | None]:
    """From the record of a benchmark: the rows of a part that have what is wanted."""

    def find(results: Path) -> Pair | None:
        if not (path := results / name).exists():
            return None
        rows = [row for row in read_record(path)[part] if all(row[key] == value for key, value in wanted.items())]
        rates = {row["contender"]: float(row[rate]) for row in rows}
        return rates["feedback"], rates["transformer"]

    return find


# Words a second in training and at inference.
PAPER = {
    "language": {"feedback": (84_400, 2_176), "transformer": (296_000, 592)},
    "translation": {"feedback": (126_000, 5_410), "transformer": (280_000, 3_190)},
}


def paper(task: str, place: int) -> Pair:
    return PAPER[task]["feedback"][place], PAPER[task]["transformer"][place]


LANGUAGE, TRANSLATION = "speed-wikitext-103-small.json", "speed-translation.json"
TOKENS = "tokens_per_second"
SHAPE = "WikiText-103 small, whole model"
SPEEDS = (
    Speed("language modelling, training", paper("language", 0), bench(LANGUAGE, "training", TOKENS),
          f"{SHAPE}, B 8", "bench --language"),
    Speed("language modelling, inference", paper("language", 1), bench(LANGUAGE, "generation", TOKENS, batch=1),
          f"{SHAPE}, B 1", "bench --language"),
    Speed("language modelling, inference", paper("language", 1), bench(LANGUAGE, "generation", TOKENS, batch=32),
          f"{SHAPE}, B 32", "bench --language"),
    Speed("translation, training", paper("translation", 0), bench(TRANSLATION, "training", TOKENS),
          "6 encoder and 2 decoder layers", "bench --translation"),
    Speed("translation, inference", paper("translation", 1), bench(TRANSLATION, "generation", TOKENS, batch=1),
          "the same, beam 5, B 1", "bench --translation"),
    Speed("translation, inference", paper("translation", 1), bench(TRANSLATION, "generation", TOKENS, batch=32),
          "the same, beam 5, B 32", "bench --translation"),
    Speed("reinforcement learning, training", (22_300, 22_300),
          bench("bench-worlds.json", "learning", "frames_per_second", shape="paper's model, 64 copies"),
          "paper's model, 64 copies", "bench --worlds"),
)  # fmt: skip


def speed_rows(results: Path) -> tuple[list[str], list[list[str]]]:
    """The header and a row a speed: ratios, and what they are of."""
    header = ["Feedback over Transformer", "paper", "here", "feedback, per second", "shape", "made by"]
    rows = []
    for speed in SPEEDS:
        found = speed.here(results)
        ours = ["not run", "-"] if found is None else [f"{found[0] / found[1]:.2f}", f"{found[0]:,.0f}"]
        paper = f"{speed.paper[0] / speed.paper[1]:.2f}"
        rows.append([speed.task, paper, *ours, speed.shape, f"`feedback-transformer {speed.command}`"])
    return header, rows
