"""Makes the model of a run, and loads it from checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from feedback_transformer.config import ConfigError
from feedback_transformer.data import corpus, pairs
from feedback_transformer.environments.world import Environment
from feedback_transformer.model.encoder_decoder import EncoderDecoder
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.model.policy import Policy
from feedback_transformer.tasks.language import Language
from feedback_transformer.tasks.pair_task import PairTask
from feedback_transformer.tasks.translation import Translation
from feedback_transformer.training import checkpoint
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.run import RunConfig


def make_model(run: RunConfig) -> Any:
    """The model of a run, with initial weights drawn from torch's random state."""
    if isinstance(run.task, Environment):
        sizes, num_actions = run.task.observation_sizes, len(run.task.actions)
        return Policy(run.model, sizes, num_actions, run.task.tells_action, engine=run.train.engine)
    if isinstance(run.task, PairTask):
        return EncoderDecoder(run.model, run.task.input_size, engine=run.train.engine)
    return LanguageModel(run.model, run.task.input_size, run.task.output_size, engine=run.train.engine)


def load_model(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load the weights of a checkpoint, or raise an error that says what does not fit."""
    weights, wanted = checkpoint.without_prefix("model", tensors), model.state_dict()
    for name in wanted:
        if name not in weights:
            raise CheckpointError(f"{path} does not fit this model: it has no weight {name!r}")
        if weights[name].shape != wanted[name].shape:
            shapes = f"{tuple(weights[name].shape)}, not {tuple(wanted[name].shape)}"
            raise CheckpointError(f"{path} does not fit this model: {name!r} has shape {shapes}")
    extra = sorted(set(weights) - set(wanted))
    if extra:
        raise CheckpointError(f"{path} does not fit this model: it has {extra[0]!r}, which the model lacks")
    model.load_state_dict(weights)


def run_of(meta: dict[str, Any], path: Path) -> RunConfig:
    """The run that a checkpoint belongs to."""
    try:
        return RunConfig.from_dict(meta.get("run", {}))
    except ConfigError as error:
        raise CheckpointError(f"{path} is not a checkpoint of a run: {error}") from None


def load_run(path: Path | str, device: str = "cpu", data: str | None = None) -> tuple[RunConfig, Any]:
    """A trained model and its run, from a checkpoint or from a run's folder (its best checkpoint).

    `data` is the folder of its corpus, if the corpus has moved.
    """
    path = Path(path)
    if path.is_dir():
        folder, path = path, path / "best.safetensors"
        if not path.exists() and (last := folder / "last.safetensors").exists():
            raise CheckpointError(
                f"{folder} was stopped before its first evaluation; continue it with "
                f"`train --resume {folder}`, or give {last}"
            )
    tensors, meta = checkpoint.load(path)
    run = run_of(meta, path)
    run = locate(run, path.parent, data)
    check_fingerprints(run, meta, path, "vocabulary")
    model = make_model(run).to(device)
    load_model(model, tensors, path)
    return run, model.eval()


def check_same_run(run: RunConfig, meta: dict[str, Any], path: Path) -> None:
    """Check that the checkpoint is from exactly this run, on the same corpus."""
    check_fingerprints(run, meta, path, "vocabulary", "text")
    differences = run_of(meta, path).differences(run)
    if meta.get("fingerprints"):  # the corpus is the same, so it may have moved
        differences = [text for text in differences if not text.startswith("task.data ")]
    if differences:
        raise ConfigError(
            f"{path} is of another run: {'; '.join(differences)}. Undo that, or start a new run in another folder"
        )


# ------------------------------------------------------------------------------ the corpus that a run depends on

COMMAND = "command"  # in a run's config.json: the one that began it
CORPUS = "corpus_from_here"  # in a run's config.json: the relative path from its folder to the corpus


def describe(run: RunConfig, folder: Path, command: str) -> dict[str, Any]:
    """config.json of a run: its configuration, its command, and the relative path from its folder to its corpus."""
    described = {**run.to_dict(), COMMAND: command}
    if not isinstance(run.task, Language | Translation):
        return described
    return {**described, CORPUS: os.path.relpath(os.path.realpath(run.task.data), os.path.realpath(folder))}


def read_config(folder: Path) -> RunConfig:
    """The run that was started in a folder."""
    path = folder / "config.json"
    try:
        return RunConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise ConfigError(f"{folder} holds no run: there is no {path}; give the folder that `train` made") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None


def began_with(folder: Path) -> str | None:
    """The command that began the run in a folder, if it was kept."""
    try:
        command = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(COMMAND)
    except (OSError, ValueError, AttributeError):
        return None
    return command if isinstance(command, str) else None


def take_corpus(assignments: dict[str, str]) -> str | None:
    """The folder in `data=FOLDER`, taken out of the assignments."""
    return assignments.pop("task.data", assignments.pop("data", None))


def locate(run: RunConfig, folder: Path, data: str | None = None) -> RunConfig:
    """The run with the current place of its corpus: `data`, else the original path, else the path from its folder."""
    if data is not None:
        return run.override({"data": data})
    if not isinstance(run.task, Language | Translation):
        return run
    last = corpus.DESCRIPTION if isinstance(run.task, Language) else pairs.DESCRIPTION
    if (Path(run.task.data) / last).is_file():
        return run
    try:
        way = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(CORPUS)
    except (OSError, ValueError, AttributeError):
        way = None
    there = os.path.relpath(folder / way) if way else ""
    if not way or not (Path(there) / last).is_file():
        places = " nor in ".join(dict.fromkeys(filter(None, (run.task.data, there))))
        raise ConfigError(f"the corpus of {folder} is not in {places}; say where it is with data=FOLDER")
    return run.override({"data": there})


def corpus_of(run: RunConfig) -> str | None:
    """The name under which the run's corpus was prepared."""
    if isinstance(run.task, Language):
        return run.task.corpus.name
    return str(run.task.pairs.description["name"]) if isinstance(run.task, Translation) else None


MEANS = {"vocabulary": "numbers its tokens differently", "text": "has a different text"}


def check_fingerprints(run: RunConfig, meta: dict[str, Any], path: Path, *names: str) -> None:
    """Check that these fingerprints of the corpus are the checkpoint's; old checkpoints without any pass."""
    kept = meta.get("fingerprints", {})
    if not kept:
        return
    own = run.task.fingerprints()
    for name in names:
        if kept.get(name) != own.get(name):
            raise CheckpointError(
                f"{path} was trained on another corpus: {getattr(run.task, 'data', run.task_name)} {MEANS[name]} "
                f"({name} {own.get(name)}, not {kept.get(name)}); prepare it with the same options, or give the right "
                "one with data=FOLDER"
            )
