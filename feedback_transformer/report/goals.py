"""Our goals for speed and memory, and what the benchmark's record says about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from feedback_transformer.report.tables import markdown_table

Record = dict[str, Any]
Ratios = Callable[[Record], list[float]]
FOUR = ("d256 L4 S100 B16", "d256 L4 S100 B64", "d128 L2 S100 B64", "d256 L4 S512 B32")
B64, S512 = FOUR[1], FOUR[3]


class Goal(NamedTuple):
    """A ratio, in words and as a function of the record (one value per case), and its target."""

    words: str
    ratios: Callable[[Record], list[float]]
    bound: float
    at_most: bool = False

    def row(self, record: Record) -> list[str]:
        values = self.ratios(record)
        reached = all(value <= self.bound if self.at_most else value >= self.bound for value in values)
        goal = f"{'≤' if self.at_most else '≥'} {self.bound:g}"
        return [
            self.words,
            goal,
            ", ".join(f"{value:.2f}" for value in values),
            "reached" if reached else "not reached",
        ]


def training(record: Record, name: str, shape: str, dropout: float = 0.2, shared: bool = True) -> float:
    """Tokens per second."""
    wanted = {"contender": name, "shape": shape, "dropout": dropout, "shared_kv": shared}
    return _find(record["training"], wanted)["tokens_per_second"]


def memory(record: Record, name: str, shape: str) -> float:
    return _find(record["memory"], {"contender": name, "shape": shape})["megabytes"]


def generation(record: Record, name: str, size: int, batch: int) -> float:
    return _find(record["generation"], {"contender": name, "memory_size": size, "batch": batch})["tokens_per_second"]


def floor(record: Record, shape: str) -> float:
    return _find(record["floor"], {"shape": shape, "shared_kv": True})["tokens_per_second"]


def _find(rows: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _over(one: str, other: str, shapes: tuple[str, ...] = FOUR, dropout: float = 0.2) -> Ratios:
    return lambda r: [training(r, one, s, dropout) / training(r, other, s, dropout) for s in shapes]


def _lighter(one: str, other: str) -> Ratios:
    return lambda r: [memory(r, one, s) / memory(r, other, s) for s in FOUR]


GOALS = (
    Goal(
        "training, native / Transformer, the four shapes, dropout 0.2 (paper: 0.29)",
        _over("native", "transformer"),
        1.3,
    ),
    Goal("the same without dropout", _over("native", "transformer", dropout=0.0), 1.1),
    Goal("native / floor, B64, without dropout", lambda r: [training(r, "native", B64, 0.0) / floor(r, B64)], 0.75),
    Goal("native / loop, B64", _over("native", "loop", (B64,)), 3.2),
    Goal("native / loop, S512", _over("native", "loop", (S512,)), 7.0),
    Goal("native / lucidrains' package, B64", _over("native", "lucidrains", (B64,)), 4.5),
    Goal("fused / loop, the four shapes", _over("fused", "loop"), 1.3),
    Goal("peak memory, fused / loop", _lighter("fused", "loop"), 0.4, at_most=True),
    Goal("peak memory, native / Transformer (paper: half)", _lighter("native", "transformer"), 0.55, at_most=True),
    Goal(
        "generation, native / Transformer: S100 B1, S100 B32, S512 B1, S512 B32 (paper: 3.7)",
        lambda r: [
            generation(r, "native", size, batch) / generation(r, "transformer", size, batch)
            for size in (100, 512)
            for batch in (1, 32)
        ],
        3.5,
    ),
    Goal(
        "native, keys and values per layer / shared, the four shapes",
        lambda r: [training(r, "native", s, shared=False) / training(r, "native", s) for s in FOUR],
        0.75,
    ),
)


def goal_table(record: Record, two_threads: Record) -> str:
    """All goals. The last compares a run with one thread to one with two, if both are of the same machine and code."""
    ratio = training(two_threads, "native", B64) / training(record, "native", B64)
    threads = Goal("native, two threads / one, B64 (two runs)", lambda _: [ratio], 1.9)
    rows = [goal.row(record) for goal in (*GOALS, threads)]
    if any(record["machine"][name] != two_threads["machine"][name] for name in ("processor", "commit")):
        rows[-1][2:] = ["not measured on the same machine and code", "not measured"]
    return markdown_table(["what", "goal", "measured", ""], rows)
