"""The training data as the loop reads it: blocks of lanes, pass after pass, stage after stage of the curriculum."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from feedback_transformer.config import ConfigError, TrainConfig, override, parse_assignments
from feedback_transformer.data.episodes import Lanes
from feedback_transformer.tasks import Task
from feedback_transformer.tasks.pair_task import PairTask
from feedback_transformer.training.run import RunConfig


class Stage(NamedTuple):
    """A task of the curriculum, and the running accuracy that ends it."""

    task: Any
    gate: float = math.inf  # the last stage has no end


def stages(task: Task, train: TrainConfig) -> list[Stage]:
    """The tasks of the curriculum, the task itself last.

    A stage is written as `length=6` or `length=6,size=4`; `gate=0.95` among them sets the stage's own gate.
    """
    return [*(_stage(task, train, text) for text in train.curriculum), Stage(task)]


def _stage(task: Task, train: TrainConfig, text: str) -> Stage:
    try:
        fields = parse_assignments(text.split(","))
    except ConfigError as error:
        raise ConfigError(f"TrainConfig.curriculum has {text!r}: {error}") from None
    gate = fields.pop("gate", str(train.curriculum_gate))
    try:
        gate_passed_at = float(gate)
    except ValueError:
        gate_passed_at = math.nan
    if not 0 <= gate_passed_at <= 1:
        raise ConfigError(f"TrainConfig.curriculum has {text!r}, whose gate = {gate} must be from 0 to 1")
    easier = override(task, fields)
    if _symbols(easier) != _symbols(task):
        raise ConfigError(
            f"TrainConfig.curriculum has {text!r}, which changes the task's symbols; leave out the fields that do"
        )
    return Stage(easier, gate_passed_at)


def _symbols(task: Task) -> tuple[Any, ...]:
    """The meaning of a model's inputs and outputs."""
    return tuple(getattr(task, name, None) for name in ("input_size", "output_size", "inputs", "outputs"))


class TrainingStream:
    """Blocks [B, T] one after the other. Its position is three numbers, so that a run can resume anywhere."""

    def __init__(self, run: RunConfig) -> None:
        self.run = run
        self.stages = stages(run.task, run.train)
        self.stage, self.passes, self.at = 0, 0, 0
        self._drawn: tuple[int, int] | None = None
        self._lanes: Lanes | None = None

    @property
    def last_stage(self) -> bool:
        return self.stage == len(self.stages) - 1

    def position(self) -> dict[str, int]:
        return {"stage": self.stage, "passes": self.passes, "at": self.at}

    def seek(self, position: dict[str, int]) -> None:
        self.stage, self.passes, self.at = position["stage"], position["passes"], position["at"]

    def advance_stage(self) -> None:
        """Move to the next task of the curriculum, at the beginning of a pass."""
        self.stage, self.passes, self.at = self.stage + 1, self.passes + 1, 0

    def next_block(self, steps: int) -> tuple[Any, ...]:
        """Tokens and labels [B, T] (for pairs, sources come first), and whether they begin a pass.

        The memory is emptied at the beginning of a pass.
        """
        lanes = self._current_lanes()
        if self.at and self.at + min(steps, lanes.longest_block) > lanes.steps:
            self.passes, self.at = self.passes + 1, 0
            lanes = self._current_lanes()
        steps = min(steps, lanes.longest_block)
        begins = self.at == 0
        rows = lanes.block(self.at, steps)
        self.at += steps
        return *rows, begins

    def _current_lanes(self) -> Lanes:
        if self._lanes is None or self._drawn != (self.stage, self.passes):
            self._drawn = (self.stage, self.passes)
            train, task = self.run.train, self.stages[self.stage].task
            size = train.batch_tokens if isinstance(task, PairTask) else train.batch_size
            self._lanes = task.lanes(size, train.train_episodes, self.run.seed, self.passes)
        return self._lanes
