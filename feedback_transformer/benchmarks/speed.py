"""Timings. All contenders of a comparison take turns within one run, and the best of several turns counts.

A machine is never quite idle: measurements taken minutes apart cannot be compared, those that took turns can.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

import torch

from feedback_transformer.benchmarks.shapes import Shape
from feedback_transformer.training.record import environment

Run = Callable[[], None]
Name = TypeVar("Name", bound=Hashable)
PATIENCE = 10.0


def take_turns(
    runs: Mapping[Name, Run],
    repeats: int,
    calls: int = 1,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, float]:
    """Seconds per call of each, the best of `repeats` turns; the first of several also serves as warm-up.

    A contender that has had two turns and `patience` seconds gets no third: it is too slow for warm-up to matter.
    """
    if repeats == 1:
        for run in runs.values():
            run()
    best, spent = dict.fromkeys(runs, float("inf")), dict.fromkeys(runs, 0.0)
    for turn in range(repeats):
        for name, run in runs.items():
            if turn >= 2 and spent[name] > patience:
                continue
            gc.collect()
            begin = clock()
            for _ in range(calls):
                run()
            seconds = clock() - begin
            best[name], spent[name] = min(best[name], seconds / calls), spent[name] + seconds
    return best


def thread_clock() -> Callable[[], float]:
    """For turns of seconds, during which other processes always interfere: CPU time with one thread, else wall time."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def machine() -> dict[str, Any]:
    """What a record says of where and when it was measured."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {**environment(torch.device("cpu")), "date": now}


def calls_within(run: Run, seconds: float) -> int:
    """How often a run fits into this time, at least once."""
    run()
    begin = time.perf_counter()
    run()
    return max(1, int(seconds / (time.perf_counter() - begin)))


def best_rate(shape: Shape, repeats: int) -> float:
    """Floating-point operations per second of torch's fastest product among the largest of a training step.

    The products are taken over all steps at once, which a model that goes step by step cannot do. The floor of a
    training step is its arithmetic at this rate.
    """
    return max(_rate(*size, repeats) for size in _products(shape))


def _products(shape: Shape) -> Iterable[tuple[int, int, int]]:
    width, inner = shape.model_dim, 4 * shape.model_dim
    yield shape.tokens, width, width
    yield shape.tokens, width, inner
    yield shape.tokens, inner, width
    yield inner, shape.tokens, width


def _rate(rows: int, shared: int, columns: int, repeats: int) -> float:
    """Floating-point operations per second of [rows, shared] x [shared, columns]."""
    left, right = torch.randn(rows, shared), torch.randn(shared, columns)
    out = torch.empty(rows, columns)

    def run() -> None:
        torch.mm(left, right, out=out)

    calls = calls_within(run, 0.05)
    return 2 * rows * shared * columns / take_turns({"mm": run}, 2 * repeats, calls)["mm"]
