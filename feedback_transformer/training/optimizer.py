"""Adam (or RMSprop) and its rate over time."""

from __future__ import annotations

import math

import torch
from torch import nn

from feedback_transformer.config import ActConfig, TrainConfig


def make_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.Optimizer:
    rate, betas, epsilon = train.learning_rate, (0.9, train.adam_beta2), 1e-8
    if isinstance(train, ActConfig):
        epsilon = train.optimizer_epsilon
        if train.optimizer == "rmsprop":
            return torch.optim.RMSprop(model.parameters(), lr=rate, alpha=0.99, eps=epsilon)
    return torch.optim.Adam(model.parameters(), lr=rate, betas=betas, eps=epsilon, fused=True)


def rate_at(step: int, train: TrainConfig, main_steps: int | None = None) -> float:
    """The rate of update `step` (from 0): linear warm-up, then the schedule, then fine-tuning at a tenth.

    >>> [rate_at(s, TrainConfig(steps=4, finetune_steps=1, warmup_steps=2, learning_rate=1.0)) for s in range(5)]
    [0.5, 1.0, 1.0, 1.0, 0.1]

    `main_steps` is where fine-tuning begins if that is earlier than planned.
    """
    if step >= (train.steps if main_steps is None else main_steps):
        return train.learning_rate / 10
    warm = min(1.0, (step + 1) / max(1, train.warmup_steps))
    done = max(0.0, (step - train.warmup_steps) / max(1, train.steps - train.warmup_steps))
    shapes = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "inverse-sqrt": math.sqrt(max(1, train.warmup_steps) / max(1, train.warmup_steps, step + 1)),
    }
    return train.learning_rate * warm * shapes[train.schedule]


def bptt_at(step: int, train: TrainConfig) -> int:
    """The block length of update `step`: shorter blocks first, where the config says so.

    >>> [bptt_at(s, TrainConfig(steps=4, bptt=64, bptt_start=16, bptt_warmup=0.5)) for s in range(4)]
    [16, 16, 64, 64]
    """
    warming = train.bptt_start and step < train.bptt_warmup * train.steps
    return train.bptt_start if warming else train.bptt
