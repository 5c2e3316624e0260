"""The mean of the weights of several moments of one run, which is often better than any of them.

A run with `keep_checkpoints=N` keeps the weights of its last N evaluations as step-NNNNNNNN.safetensors, for `average`.
One with `ema_decay` follows its weights with a `RunningAverage`, and that is what it is scored by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from feedback_transformer.training import checkpoint
from feedback_transformer.training.checkpoint import CheckpointError


class RunningAverage:
    """a <- d a + (1 - d) w after every update, d being `decay`, but less at first: what was before learning began is
    forgotten soon. With a decay of 0 the average is the weights themselves, and nothing is done."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.weights, self.decay = dict(model.named_parameters()) if decay else {}, decay
        self.means = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After update number `step`, counted from 0."""
        share = 1 - min(self.decay, (step + 1) / (step + 10))
        for name, weight in self.weights.items():
            self.means[name].lerp_(weight, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model's weights are their average."""
        own = {name: weight.detach().clone() for name, weight in self.weights.items()}
        _copy(self.means, self.weights)
        try:
            yield
        finally:
            _copy(own, self.weights)

    def load(self, means: Mapping[str, Tensor]) -> None:
        """What a checkpoint has kept of it."""
        _copy(means, self.means)


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
    for name, place in places.items():
        place.copy_(values[name])


def kept_checkpoints(folder: Path) -> list[Path]:
    """Those of evaluations, the newest last."""
    return sorted(folder.glob("step-*.safetensors"))


def keep_weights(
    folder: Path, step: int, model: nn.Module, run: dict[str, Any], fingerprints: dict[str, str], count: int
) -> None:
    """Write the weights as they are now, and remove all but the newest `count`."""
    weights = checkpoint.with_prefix("model", model.state_dict())
    path = folder / f"step-{step:08d}.safetensors"
    checkpoint.save(path, weights, {"run": run, "fingerprints": fingerprints})
    for old in kept_checkpoints(folder)[:-count]:
        old.unlink()


def average(folder: Path, count: int, out: Path) -> list[Path]:
    """Write the mean of the last `count` kept checkpoints of a run; tell which they were."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder of a run")
    paths = kept_checkpoints(folder)
    if len(paths) < count:
        raise CheckpointError(
            f"{folder} keeps {len(paths)} checkpoints of evaluations, not {count}; train with keep_checkpoints={count}"
        )
    sums: dict[str, Tensor] = {}
    meta = None
    for path in paths[-count:]:
        tensors, meta = checkpoint.load(path)
        for name, tensor in tensors.items():
            sums[name] = sums.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor
    assert meta is not None
    means = {name: (total / count).to(tensors[name].dtype) for name, total in sums.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(out, means, {**meta, "averaged": [path.name for path in paths[-count:]]})
    return paths[-count:]
