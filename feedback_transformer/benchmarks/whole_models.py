"""What the benchmarks of whole models share: from tokens to updated weights, and from weights to tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from feedback_transformer.benchmarks.speed import Run, calls_within, machine, take_turns, thread_clock
from feedback_transformer.config import TrainConfig
from feedback_transformer.training.optimizer import make_optimizer


class Turn(NamedTuple):
    """What each contender does in a turn, and how many tokens that processes."""

    runs: Mapping[str, Run]
    tokens: int


def measure_models(
    settings: Mapping[str, Any],
    training: Mapping[int, Callable[[], Turn]],
    generation: Mapping[int, Callable[[], Turn]],
    quick: bool,
    repeats: int,
    console: Console,
) -> dict[str, Any]:
    """Training and generation by batch; contenders taking turns, as a record."""
    record: dict[str, Any] = {
        "machine": machine(),
        "settings": {"repeats": repeats, **settings},
        "training": [],
        "generation": [],
    }
    clock = thread_clock()

    def measure(part: str, batch: int, turn: Turn, calls: int) -> None:
        for name, each in take_turns(turn.runs, repeats, calls, math.inf, clock).items():
            record[part].append({"batch": batch, **rates(name, each, turn.tokens)})

    for batch, make in training.items():
        console.print(f"training B{batch}", style="dim")
        measure("training", batch, make(), calls=1)
    for batch, make in generation.items():
        console.print(f"generation B{batch}", style="dim")
        turn = make()
        measure(
            "generation", batch, turn, 2 if quick else max(2, min(calls_within(run, 0.5) for run in turn.runs.values()))
        )
    return record


def rates(name: str, seconds: float, tokens: int) -> dict[str, Any]:
    return {"contender": name, "seconds": seconds, "tokens_per_second": tokens / seconds}


def updating(model: nn.Module, train: TrainConfig, loss: Callable[[], Tensor]) -> Run:
    """One update: loss, gradients, clipping, Adam."""
    optimizer = make_optimizer(model, train)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()  # type: ignore[no-untyped-call]
        if train.gradient_clip:
            clip_grad_norm_(model.parameters(), train.gradient_clip)
        optimizer.step()

    return run


def zipf(batch: int, steps: int, vocabulary: int) -> Tensor:
    """Words [B, T], the r-th most frequent of which occurs about 1/r as often as the first."""
    random = torch.Generator().manual_seed(0)
    uniform = torch.rand(batch, steps, generator=random, dtype=torch.float64)
    return (vocabulary**uniform).long() - 1
