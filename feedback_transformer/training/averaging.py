"""The mean of several checkpoints of one run, which is often better than each of them.

A run with `keep_checkpoints=N` keeps the weights of its last N evaluations as step-NNNNNNNN.safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from feedback_transformer.training import checkpoint
from feedback_transformer.training.checkpoint import CheckpointError


def kept_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints kept at evaluations, the newest last."""
    return sorted(folder.glob("step-*.safetensors"))


def keep_weights(
    folder: Path, step: int, model: nn.Module, run: dict[str, Any], fingerprints: dict[str, str], count: int
) -> None:
    """Write the current weights, and remove all but the newest `count` files."""
    weights = checkpoint.with_prefix("model", model.state_dict())
    path = folder / f"step-{step:08d}.safetensors"
    checkpoint.save(path, weights, {"run": run, "fingerprints": fingerprints})
    for old in kept_checkpoints(folder)[:-count]:
        old.unlink()


def average(folder: Path, count: int | None, out: Path) -> list[Path]:
    """Write the mean of the last `count` kept checkpoints of a run, or of all; returns their paths."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not the folder of a run; give the folder that `train` made")
    if out.resolve() in ((folder / name).resolve() for name in ("best.safetensors", "last.safetensors")):
        raise CheckpointError(f"{out} is what the run itself goes on from; choose another file")
    checkpoint.make_folder(out.parent)
    kept = kept_checkpoints(folder)
    if not kept or len(kept) < (count or 1):
        raise CheckpointError(
            f"{folder} keeps {len(kept)} checkpoints of evaluations, not {count}; average all of them with --last "
            f"{len(kept)}"
            if kept
            else f"{folder} keeps no checkpoints of evaluations; train with keep_checkpoints=10"
        )
    paths = kept[-(count or len(kept)) :]
    sums: dict[str, Tensor] = {}
    meta = None
    for path in paths:
        tensors, meta = checkpoint.load(path)
        for name, tensor in tensors.items():
            sums[name] = sums.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor
    assert meta is not None
    means = {name: (total / len(paths)).to(tensors[name].dtype) for name, total in sums.items()}
    checkpoint.save(out, means, {**meta, "averaged": [path.name for path in paths]})
    return paths
