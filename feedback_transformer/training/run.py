"""A run: task, model, training and seed. Everything that a result depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedback_transformer.config import (
    ActConfig,
    ConfigError,
    ModelConfig,
    TrainConfig,
    field_types,
    from_dict,
    nearest,
    override,
    to_dict,
)
from feedback_transformer.tasks import TASKS, WORLDS, Task, make_task
from feedback_transformer.tasks.language import Language
from feedback_transformer.tasks.pair_task import PairTask
from feedback_transformer.tasks.translation import Translation


@dataclass(frozen=True)
class RunConfig:
    """Three sections, `task`, `model` and `train`; set a field with `section.field=value` or just `field=value`."""

    task_name: str
    task: Task
    model: ModelConfig
    train: TrainConfig
    seed: int = 0

    def sections(self) -> dict[str, Any]:
        return {"task": self.task, "model": self.model, "train": self.train}

    def override(self, assignments: Mapping[str, str]) -> RunConfig:
        """`{"num_layers": "4", "task.length": "50"}`; an unknown name raises an error that suggests the nearest."""
        sections = self.sections()
        chosen: dict[str, dict[str, str]] = {name: {} for name in sections}
        for name, value in assignments.items():
            section, bare = self._locate(name)
            chosen[section][bare] = value
        changed = {name: override(sections[name], values) for name, values in chosen.items()}
        refuse_unread(changed["model"], chosen["model"])
        new = dataclasses.replace(self, **changed)
        for name, reason in unread_in_training(new).items():
            if getattr(new.train, name) != getattr(self.train, name):
                raise ConfigError(f"TrainConfig.{name} = {getattr(new.train, name)} has no effect here: {reason}")
        return new

    def with_task(self, assignments: Mapping[str, str]) -> RunConfig:
        """The same for a trained model, whose task alone can be set."""
        known = {name for section in self.sections().values() for name in field_types(type(section))}
        for name in assignments:
            if "." not in name and name not in known:
                raise ConfigError(f"the task has no field {name!r}{nearest(name, field_types(type(self.task)))}")
        changed = self.override(assignments)
        misfit = [text for text in self.differences(changed) if not text.startswith("task.")]
        if misfit:
            raise ConfigError(f"a trained model cannot be changed: {misfit[0]}; only fields of the task can be set")
        return changed

    def _locate(self, name: str) -> tuple[str, str]:
        fields = {section: field_types(type(config)) for section, config in self.sections().items()}
        section, dot, bare = name.partition(".")
        if dot and section in fields and bare in fields[section]:
            return section, bare
        if not dot:
            for section, known in fields.items():
                if name in known:
                    return section, name
        if dot and section not in fields:
            raise ConfigError(f"there is no section {section!r} in {name!r}; the sections are {', '.join(fields)}")
        known_names = list(fields[section]) if dot else [field for known in fields.values() for field in known]
        raise ConfigError(f"there is no field {bare if dot else name!r}{nearest(bare if dot else name, known_names)}")

    def without_places(self) -> RunConfig:
        """The run for a record: a corpus by its name, without its path on this machine."""
        data = getattr(self.task, "data", "")
        return self.override({"task.data": Path(data).name}) if Path(data).is_absolute() else self

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `from_dict` restores it."""
        sections = {name: to_dict(config) for name, config in self.sections().items()}
        return {"task_name": self.task_name, **sections, "seed": self.seed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Restore what `to_dict` returned; anything else is a ConfigError."""
        try:
            return cls._from_dict(values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"this is not the configuration of a run ({type(error).__name__}: {error})") from None

    @classmethod
    def _from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        if values["task_name"] not in TASKS:
            make_task(values["task_name"])  # says which tasks there are
        task_type = type(TASKS[values["task_name"]].task)
        return cls(
            values["task_name"],
            from_dict(task_type, values["task"]),
            from_dict(ModelConfig, values["model"]),
            from_dict(ActConfig if values["task_name"] in WORLDS else TrainConfig, values["train"]),
            int(values["seed"]),
        )

    def differences(self, other: RunConfig) -> list[str]:
        """`model.num_layers is 2, not 4` for every field in which the two differ."""
        mine, others = _flat(self.to_dict()), _flat(other.to_dict())
        names = sorted(set(mine) | set(others))
        return [f"{n} is {mine.get(n)!r}, not {others.get(n)!r}" for n in names if mine.get(n) != others.get(n)]


def refuse_unread(model: ModelConfig, named: Mapping[str, str]) -> None:
    """An error for a field that was set, but that this model does not read."""
    if model.core != "feedback" and "memory" in named:
        raise ConfigError(f"ModelConfig.memory is of the core 'feedback', not {model.core!r}; leave it out")
    for name in ("memory_top", "memory_bottom"):
        if name in named and float(named[name]) != getattr(model, name):  # it was set back to zero
            raise ConfigError(
                f"ModelConfig.{name} is of the core 'feedback' with the memory 'weighted-sum', not of "
                f"{model.core!r} with {model.memory!r}; leave it out"
            )


def unread_in_training(run: RunConfig) -> dict[str, str]:
    """The training fields that this run does not read, each with the reason."""
    pairs, corpus = isinstance(run.task, PairTask), isinstance(run.task, Language | Translation)
    unread: dict[str, str] = {}
    if pairs:
        whole = "pairs are read whole, in batches of batch_tokens"
        unread |= dict.fromkeys(("bptt", "bptt_start", "bptt_warmup"), whole)
        if run.train.accumulate == 1:  # which has to divide it
            unread["batch_size"] = whole
    else:
        unread["batch_tokens"] = "it is for pairs; set batch_size"
    if corpus:
        part = "valid_pairs and test_pairs" if pairs else "valid_tokens"
        given = f"a corpus has its own texts ({part} can shorten those for scoring)"
        unread |= dict.fromkeys(("train_episodes", "validation_episodes", "test_episodes"), given)
    if run.task_name in WORLDS:
        unread["label_smoothing"] = "actions have no labels"
        unread["train_episodes"] = "worlds are endless"
        if getattr(run.train, "optimizer", "adam") == "rmsprop":
            unread["adam_beta2"] = "it is of the optimizer adam"
    if not run.model.adaptive_span:
        unread["span_loss"] = "set adaptive_span=true, too"
    return unread


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value})
    return flat
