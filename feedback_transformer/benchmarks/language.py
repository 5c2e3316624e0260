"""A whole language model at the paper's shape: its small one of WikiText-103, from words to updated weights.

The paper's speed table is of this task, on GPUs. Here the batch and the block are smaller; embeddings, adaptive
softmax, clipping and Adam are included; words are drawn by Zipf's law, which decides how often rare clusters are
computed. With one thread its CPU time counts: a turn takes seconds, and no turn of seconds is left alone by others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from feedback_transformer.benchmarks.contenders import full_state
from feedback_transformer.benchmarks.speed import calls_within, take_turns
from feedback_transformer.config import ModelConfig
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.presets import PAPER_MODELS, PAPER_TRAIN
from feedback_transformer.training.optimizer import make_optimizer
from feedback_transformer.training.record import environment

Run = Callable[[], None]
WORDS = 267_735  # of WikiText-103


@dataclass(frozen=True)
class Setting:
    """What is measured: a model, and how much of it at a time."""

    model: ModelConfig
    vocabulary: int
    batch: int
    steps: int
    generation_batches: tuple[int, ...]

    def contenders(self) -> dict[str, ModelConfig]:
        """The paper's speed table has the Feedback Transformer with shared keys and values."""
        return {
            "feedback": replace(self.model, shared_kv=True),
            "feedback, keys and values per layer": self.model,
            "transformer": replace(self.model, core="transformer"),
        }


SMALL = Setting(PAPER_MODELS["wikitext-103-small"], WORDS, batch=8, steps=128, generation_batches=(1, 32))
TINY = Setting(
    replace(SMALL.model, model_dim=16, num_heads=2, head_dim=8, ff_dim=32, memory_size=8, cutoffs=(50, 100)),
    vocabulary=200, batch=2, steps=8, generation_batches=(1,),
)  # fmt: skip


def measure(quick: bool, repeats: int, console: Console) -> dict[str, Any]:
    """Training and generation, contenders taking turns, as a record."""
    setting = TINY if quick else SMALL
    record: dict[str, Any] = {
        "machine": {
            **environment(torch.device("cpu")),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
        "settings": {
            "repeats": repeats,
            "batch": setting.batch,
            "steps": setting.steps,
            "vocabulary": setting.vocabulary,
            "memory_size": setting.model.memory_size,
            "dropout": setting.model.dropout,
        },
    }
    configs = setting.contenders()
    console.print("training", style="dim")
    runs = {name: training(config, setting) for name, config in configs.items()}
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = take_turns(runs, repeats, patience=math.inf, clock=clock)
    record["training"] = [rates(name, each, setting.batch * setting.steps) for name, each in seconds.items()]
    record["generation"] = []
    for batch in setting.generation_batches:
        console.print(f"generation B{batch}", style="dim")
        runs = {name: generation(config, setting.vocabulary, batch) for name, config in configs.items()}
        calls = 2 if quick else max(2, min(calls_within(run, 0.5) for run in runs.values()))
        for name, each in take_turns(runs, repeats, calls, math.inf, clock).items():
            record["generation"].append({"batch": batch, **rates(name, each, batch)})
    return record


def rates(name: str, seconds: float, tokens: int) -> dict[str, Any]:
    return {"contender": name, "seconds": seconds, "tokens_per_second": tokens / seconds}


def training(config: ModelConfig, setting: Setting) -> Run:
    """One update over a block with a full memory: loss, gradients, clipping, Adam."""
    train = PAPER_TRAIN["wikitext-103"]
    model = LanguageModel(config, setting.vocabulary)
    optimizer = make_optimizer(model, train)
    tokens = zipf(setting.batch, setting.steps + 1, setting.vocabulary)
    state = full_state(model.core, config, setting.batch)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        losses, _ = model.losses(tokens[:, :-1], tokens[:, 1:], state)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.parameters(), train.gradient_clip)
        optimizer.step()

    return run


def generation(config: ModelConfig, vocabulary: int, batch: int) -> Run:
    """One greedy word for every row, from a full memory on."""
    model = LanguageModel(config, vocabulary).eval()
    tokens, state = torch.zeros(batch, dtype=torch.long), full_state(model.core, config, batch)

    @torch.no_grad()
    def run() -> None:
        nonlocal tokens, state
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(dim=-1)

    return run


def zipf(batch: int, steps: int, vocabulary: int) -> Tensor:
    """Words [B, T] of which the r-th most frequent comes about 1/r as often as the first."""
    random = torch.Generator().manual_seed(0)
    uniform = torch.rand(batch, steps, generator=random, dtype=torch.float64)
    return (vocabulary**uniform).long() - 1
