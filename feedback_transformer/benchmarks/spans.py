"""How time and memory of a training step fall as adaptive spans shrink while their limit stays the same.

Spans are set, not learned: every head of every layer sees `span` steps. In the last case one head of the top layer sees
the whole memory and the others the shortest span, which is what heads typically learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console

from feedback_transformer.benchmarks.contenders import Contender
from feedback_transformer.benchmarks.memory import peak_megabytes
from feedback_transformer.benchmarks.shapes import Shape
from feedback_transformer.benchmarks.speed import machine, take_turns, thread_clock

SHAPE = Shape("d128 L4 S8192 B4", 128, 4, 4, 8192, 4)
SPANS = (8192, 4096, 2048, 1024, 256, 64)
QUICK = Shape("d16 L2 S256 B2", 16, 2, 2, 256, 2, steps=4)
QUICK_SPANS = (64,)


def measure_spans(present: list[Contender], repeats: int, quick: bool, console: Console) -> dict[str, Any]:
    """The record, with one row per case and contender."""
    shape, spans = (QUICK, QUICK_SPANS) if quick else (SHAPE, SPANS)
    rows = []
    for case in _cases(shape, spans):
        console.print(f"spans: {case.name}", style="dim")
        runs = {one.name: one.train(case, 0.0, True) for one in present}
        for name, seconds in take_turns(runs, repeats, clock=thread_clock()).items():
            megabytes = peak_megabytes(name, case, 0.0, True, torch.get_num_threads())
            rows.append(
                {"case": case.name, "span": case.span, "long_heads": case.long_heads, "contender": name}
                | {"seconds": seconds, "microseconds_a_token": 1e6 * seconds / case.tokens}
                | {"megabytes": round(megabytes, 1), "kilobytes_a_token": round(1e3 * megabytes / case.tokens, 1)}
            )
    settings = {"shape": shape.name, "memory_size": shape.memory_size, "steps": shape.steps, "repeats": repeats}
    return {
        "machine": machine(),
        "settings": settings,
        "notes": {contender.name: contender.note for contender in present},
        "spans": rows,
    }


def _cases(shape: Shape, spans: tuple[int, ...]) -> Iterable[Shape]:
    for span in spans:
        yield replace(shape, name=f"{span:,}", span=span)
    yield replace(shape, name=f"one head {shape.memory_size:,}, the others {spans[-1]}", span=spans[-1], long_heads=1)
