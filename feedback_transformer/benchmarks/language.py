"""A whole language model at the paper's shape, its small one for WikiText-103, from words to updated weights.

The paper's speed table has this task, on GPUs. Here the batch and the block are smaller. The batch matters: a step of
Feedback reads all weights for as many rows as there are, and with few of them it mostly waits for the weights.
Embeddings, adaptive softmax, clipping and Adam are included. Words are drawn by Zipf's law, which decides how often
rare clusters are computed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console

from feedback_transformer.benchmarks.contenders import full_state
from feedback_transformer.benchmarks.speed import Run
from feedback_transformer.benchmarks.whole_models import Turn, measure_models, updating, zipf
from feedback_transformer.config import ModelConfig
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.presets import PAPER_MODELS, PAPER_TRAIN

WORDS = 267_735  # of WikiText-103


@dataclass(frozen=True)
class Setting:
    """What is measured: a model, and how much of it at a time."""

    model: ModelConfig
    vocabulary: int
    steps: int
    training_batches: tuple[int, ...]
    generation_batches: tuple[int, ...]

    def contenders(self) -> dict[str, ModelConfig]:
        """The paper's speed table has the Feedback Transformer with shared keys and values."""
        return {
            "feedback": replace(self.model, shared_kv=True),
            "feedback, keys and values per layer": self.model,
            "transformer": replace(self.model, core="transformer"),
        }


SMALL = Setting(
    PAPER_MODELS["wikitext-103-small"], WORDS, steps=128, training_batches=(8, 32), generation_batches=(1, 32)
)
TINY = Setting(
    replace(SMALL.model, model_dim=16, num_heads=2, head_dim=8, ff_dim=32, memory_size=8, cutoffs=(50, 100)),
    vocabulary=200, steps=8, training_batches=(2,), generation_batches=(1,),
)  # fmt: skip


def measure(quick: bool, repeats: int, console: Console) -> dict[str, Any]:
    """Training and generation, contenders taking turns, as a record."""
    setting = TINY if quick else SMALL
    configs = setting.contenders()

    def learning(batch: int) -> Turn:
        runs = {name: training(config, setting, batch) for name, config in configs.items()}
        return Turn(runs, batch * setting.steps)

    def generating(batch: int) -> Turn:
        return Turn({name: generation(config, setting.vocabulary, batch) for name, config in configs.items()}, batch)

    return measure_models(
        {
            "steps": setting.steps,
            "vocabulary": setting.vocabulary,
            "memory_size": setting.model.memory_size,
            "dropout": setting.model.dropout,
        },
        {batch: functools.partial(learning, batch) for batch in setting.training_batches},
        {batch: functools.partial(generating, batch) for batch in setting.generation_batches},
        quick,
        repeats,
        console,
    )


def training(config: ModelConfig, setting: Setting, batch: int) -> Run:
    """One update over a block with a full memory."""
    model = LanguageModel(config, setting.vocabulary)
    tokens = zipf(batch, setting.steps + 1, setting.vocabulary)
    state = full_state(model.core, config, batch)
    return updating(
        model, PAPER_TRAIN["wikitext-103"], lambda: model.losses(tokens[:, :-1], tokens[:, 1:], state)[0].mean()
    )


def generation(config: ModelConfig, vocabulary: int, batch: int) -> Run:
    """One greedy word per row, starting from a full memory."""
    model = LanguageModel(config, vocabulary).eval()
    tokens, state = torch.zeros(batch, dtype=torch.long), full_state(model.core, config, batch)

    @torch.no_grad()
    def run() -> None:
        nonlocal tokens, state
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(dim=-1)

    return run
