"""Small runs, and what two equal ones must agree on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from feedback_transformer.presets import preset
from feedback_transformer.training import checkpoint
from feedback_transformer.training.run import RunConfig

CPU = torch.device("cpu")


def small_run(core: str = "feedback", **overrides: Any) -> RunConfig:
    run = preset("random-walk", "smoke", core)
    return run.override({"dropout": "0.1", **{name: str(value) for name, value in overrides.items()}})


def comparable(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]], Any]:
    """All that two equal runs must agree on to the bit; clocks are left out."""
    tensors, meta = checkpoint.load(folder / "last.safetensors")
    record = json.loads((folder / "record.json").read_text())
    curve = [{name: value for name, value in point.items() if name != "seconds"} for point in record["curve"]]
    return tensors, curve, (meta["stream"], meta["losses"], record["test"])


def assert_same(one: Path, other: Path) -> None:
    first, second = comparable(one), comparable(other)
    assert first[1:] == second[1:]
    assert first[0].keys() == second[0].keys()
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])
