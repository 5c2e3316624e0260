"""Figures of learning curves and of walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

matplotlib.use("Agg")  # pictures go to files, also where there is no screen
from matplotlib import pyplot as plt

from feedback_transformer.config import CORES

# Okabe and Ito's colours, which colour-blind readers tell apart.
COLOURS = {"feedback": "#0072B2", "transformer": "#D55E00", "lstm": "#009E73"}
WRONG = "#CC3311"


def learning_figure(
    path: Path, records: Mapping[str, dict[str, Any]], by_step: Mapping[str, NDArray[np.float64]], metric: str
) -> None:
    """Left: the held-out score over training tokens. Right: the score along an episode, after training."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for core, record in records.items():
        curve = record["curve"]
        left.plot([p["tokens"] / 1e6 for p in curve], [100 * p[metric] for p in curve], **_line(core))
    left.set(xlabel="training tokens (millions)", ylabel=f"held-out {metric} (%)", title="Learning")
    for core, values in by_step.items():
        right.plot(np.arange(1, len(values) + 1), 100 * values, **_line(core))
    right.set(xlabel="actions since the start", ylabel=f"{metric} (%)", title="Along a walk, after training")
    for axes in (left, right):
        axes.set_ylim(-2, 102)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _line(core: str) -> dict[str, Any]:
    return {"color": COLOURS[core], "label": CORES[core], "linewidth": 2}


def walk_figure(
    path: Path, size: int, start: int, truth: Sequence[int], predicted: Mapping[str, Sequence[int]]
) -> None:
    """One walk, one panel per model: the true path in grey, the predicted one on top, wrong answers marked."""
    figure, panels = plt.subplots(
        1, len(predicted), figsize=(4 * len(predicted), 5.2), layout="constrained", squeeze=False
    )
    for axes, (core, cells) in zip(panels[0], predicted.items(), strict=True):
        right = np.array(cells) == np.array(truth)
        _draw_path(axes, size, [start, *truth], color="#BBBBBB", linewidth=9, label="true path", zorder=1)
        _draw_path(axes, size, [start, *cells], color=COLOURS[core], linewidth=2, label="predicted", zorder=2)
        if not right.all():
            missed = np.array(cells)[~right]
            axes.plot(missed % size, missed // size, "x", color=WRONG, markersize=9, label="wrong answer", zorder=3)
        axes.plot(start % size, start // size, "o", color="black", markersize=7, label="start", zorder=4)
        axes.set(title=f"{CORES[core]}\n{right.sum()} of {len(truth)} answers right", aspect="equal")
        axes.set(xlim=(-0.6, size - 0.4), ylim=(size - 0.4, -0.6))
        axes.set_xticks(np.arange(-0.5, size), labels=[])
        axes.set_yticks(np.arange(-0.5, size), labels=[])
        axes.tick_params(length=0)
        axes.grid(color="#DDDDDD", linewidth=0.8, zorder=0)
    handles: dict[str, Any] = {}
    for axes in panels[0]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_path(axes: Any, size: int, cells: Sequence[int], **style: Any) -> None:
    places = np.array(cells)
    axes.plot(places % size, places // size, solid_capstyle="round", solid_joinstyle="round", **style)
