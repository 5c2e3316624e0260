"""Models of runs: made, and loaded from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from feedback_transformer.config import ConfigError
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.training import checkpoint
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.run import RunConfig


def make_model(run: RunConfig) -> LanguageModel:
    """The model of a run, with its first weights drawn from torch's random numbers."""
    return LanguageModel(run.model, run.task.input_size, run.task.output_size, engine=run.train.engine)


def load_model(model: LanguageModel, tensors: dict[str, Tensor], path: Path) -> None:
    """The weights of a checkpoint, or a sentence on what does not fit."""
    weights, wanted = checkpoint.without_prefix("model", tensors), model.state_dict()
    for name in wanted:
        if name not in weights:
            raise CheckpointError(f"{path} has no weight {name!r}: it is of another model")
        if weights[name].shape != wanted[name].shape:
            shapes = f"{tuple(weights[name].shape)}, not {tuple(wanted[name].shape)}"
            raise CheckpointError(f"{path} does not fit this model: {name!r} is of shape {shapes}")
    extra = sorted(set(weights) - set(wanted))
    if extra:
        raise CheckpointError(f"{path} does not fit this model: it has {extra[0]!r}, the model has not")
    model.load_state_dict(weights)


def run_of(meta: dict[str, Any], path: Path) -> RunConfig:
    """The run that a checkpoint is of."""
    try:
        return RunConfig.from_dict(meta.get("run", {}))
    except ConfigError as error:
        raise CheckpointError(f"{path} is not a checkpoint of a run: {error}") from None


def load_run(path: Path, device: str = "cpu") -> tuple[RunConfig, LanguageModel]:
    """A trained model and its run, from a checkpoint or from a run's folder (its best checkpoint)."""
    path = path / "best.safetensors" if path.is_dir() else path
    tensors, meta = checkpoint.load(path)
    run = run_of(meta, path)
    model = make_model(run).to(device)
    load_model(model, tensors, path)
    return run, model.eval()
