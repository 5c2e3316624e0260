"""Named configurations: the paper's exact hyperparameters, and reduced ones for a laptop and for the tests.

smoke     seconds: does everything run?
laptop    minutes on one core, reduced
paper     the published hyperparameters

They are in `toys.py` (with state tracking), `language.py`, `pairs.py` and `worlds.py`.
"""

from __future__ import annotations

from dataclasses import replace

from feedback_transformer.config import ConfigError, ModelConfig, TrainConfig, nearest
from feedback_transformer.presets import language, pairs, toys, worlds
from feedback_transformer.tasks import CORPORA, PAIR_TOYS, PAIRS, STATES, TASKS, WORLDS, make_task
from feedback_transformer.training.run import RunConfig

SCALES = {
    "smoke": "takes seconds; checks that everything runs, learns nothing",
    "laptop": "reduced: minutes to an hour on one core",
    "paper": "the published hyperparameters",
    "paper-small": "the same for the paper's smaller model (wikitext-103 only)",
}

SMALLER = {("wikitext-103", "paper"): "paper-small"}  # the presets that there are two of

PAPER_MODELS = {"toy": toys.PAPER_MODEL, **language.PAPER_MODELS, **pairs.PAPER_MODELS}
PAPER_TRAIN = {"toy": toys.PAPER_TRAIN, **language.PAPER_TRAIN, **pairs.PAPER_TRAIN}
LAPTOP: dict[str, tuple[ModelConfig, TrainConfig]] = {
    **toys.LAPTOP_TOYS,
    **toys.LAPTOP_STATES,
    **language.LAPTOP,
    **worlds.LAPTOP_WORLDS,
    **pairs.LAPTOP,
}
LAPTOP_FIELDS = worlds.WORLD_FIELDS | toys.TOY_FIELDS


def preset(task_name: str, scale: str = "laptop", core: str = "feedback", seed: int = 0) -> RunConfig:
    """A run of that task at that scale.

    >>> preset("random-walk", "paper").model.num_layers
    4
    """
    task = make_task(task_name)
    if scale not in SCALES:
        raise ConfigError(f"there is no preset {scale!r}{nearest(scale, SCALES)}")
    if scale.startswith("paper"):
        model, train = paper(task_name, scale)
    else:
        model, train = LAPTOP[task_name]
        task = make_task(task_name, LAPTOP_FIELDS.get(task_name))
    if scale == "smoke":
        model = replace(model, model_dim=16, head_dim=0, ff_dim=32, memory_size=min(32, model.memory_size), cutoffs=())
        task = make_task(task_name, SMOKE_TASKS.get(task_name, {"length": "10"}))
        train = replace(train, **SMOKE_TRAIN)  # type: ignore[arg-type]
    # Layers share keys and values where they share a memory; those of a Transformer read memories of their own.
    shared = model.shared_kv and core != "transformer"
    return RunConfig(task_name, task, replace(model, core=core, shared_kv=shared), train, seed)


def configured(task_name: str, scale: str, seed: int, fields: dict[str, str]) -> RunConfig:
    """The preset for the core named in the fields, with these fields changed."""
    return preset(task_name, scale, fields.get("core", fields.get("model.core", "feedback")), seed).override(fields)


def paper(task_name: str, scale: str) -> tuple[ModelConfig, TrainConfig]:
    """Model and training as published."""
    if scale == "paper-small":
        if (task_name, "paper") not in SMALLER:
            raise ConfigError(f"there is no preset 'paper-small' of {task_name}, only of wikitext-103")
        return PAPER_MODELS["wikitext-103-small"], replace(PAPER_TRAIN["wikitext-103"], span_loss=0.0)
    if task_name in PAPER_MODELS:
        return PAPER_MODELS[task_name], PAPER_TRAIN[task_name]
    if task_name in WORLDS:
        return worlds.PAPER_WORLDS[task_name]
    if task_name in CORPORA or task_name in PAIRS or task_name in STATES:
        raise ConfigError(f"the paper has no experiment on {task_name}; start from --preset laptop")
    model, train = PAPER_MODELS["toy"], PAPER_TRAIN["toy"]
    if task_name in PAIR_TOYS:  # the paper has no encoder here
        return replace(model, memory_size=512, **pairs.NEIGHBOURS), replace(train, batch_tokens=512 * 64)
    return replace(model, memory_size=toys.PAPER_WINDOWS.get(task_name, model.memory_size)), train


SMOKE_TRAIN = {
    "steps": 20,
    "batch_size": 8,
    "bptt": 8,
    "bptt_start": 0,
    "eval_every": 10,
    "curriculum": (),
    "validation_episodes": 8,
    "test_episodes": 8,
    "warmup_steps": 5,
}
SMOKE_TASKS = {
    **{name: {"length": "6", "test_length": "8"} for name in ("copy", "reverse", *PAIR_TOYS)},
    **toys.SMOKE_STATES,
    **{name: {"size": "5", "episode_steps": "10"} for name in WORLDS},
    "corridor": {"length": "3"},
    **{name: {"valid_tokens": "1000"} for name in CORPORA},
    **{name: {"valid_pairs": "20", "test_pairs": "20", "extra_length": "10", "shortest": "0"} for name in PAIRS},
}

assert set(LAPTOP) == set(TASKS), "every task has a laptop preset"
