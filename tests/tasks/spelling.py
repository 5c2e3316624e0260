"""Tokens and labels of a task as its symbols."""

from __future__ import annotations

from typing import Any

import numpy as np

from feedback_transformer.data.episodes import NO_LABEL


def words(task: Any, tokens: np.ndarray) -> list[str]:
    return [task.inputs[token] for token in tokens]


def answers(task: Any, labels: np.ndarray) -> list[str | None]:
    return [None if label == NO_LABEL else task.outputs[label] for label in labels]
