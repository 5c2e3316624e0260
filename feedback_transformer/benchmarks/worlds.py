"""Reinforcement-learning worlds: the possible reward in each, its steps per second, and the speed of A2C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from feedback_transformer.benchmarks.speed import machine, take_turns, thread_clock
from feedback_transformer.config import CORES
from feedback_transformer.environments.play import play_oracle, play_randomly
from feedback_transformer.environments.world import Environment, Trial
from feedback_transformer.presets import preset
from feedback_transformer.tasks import WORLDS
from feedback_transformer.training.run import RunConfig

COPIES = 1024
STEPS = 200  # an episode of a maze
BOUND_EPISODES = 1000
# The models: the paper's, with a number of copies that suits a CPU, and the reduced one.
LEARNERS: dict[str, tuple[str, dict[str, int]]] = {
    "paper's model, 64 copies": ("paper", {"batch_size": 64, "bptt": 100}),
    "laptop preset": ("laptop", {}),
}
QUICK_LEARNERS: dict[str, tuple[str, dict[str, int]]] = {"smoke preset": ("smoke", {})}


def measure(quick: bool, repeats: int, console: Console) -> dict[str, Any]:
    """The whole benchmark as a record."""
    record: dict[str, Any] = {
        "machine": machine(),
        "settings": {"repeats": repeats, "copies": COPIES},
        "worlds": [],
        "bounds": [],
        "learning": [],
    }
    for name, entry in WORLDS.items():
        console.print(f"world {name}", style="dim")
        assert isinstance(entry.task, Environment)
        seconds = take_turns({name: stepping(entry.task)}, repeats, clock=thread_clock())[name]
        record["worlds"].append({"world": name, "seconds": seconds, "steps_per_second": COPIES * STEPS / seconds})
        for scale in ("laptop", "paper"):
            task = preset(name, scale).task
            assert isinstance(task, Environment)
            record["bounds"].append({"world": name, "preset": scale, "task": str(task), **bounds(task, quick)})
    for shape, (scale, fields) in (QUICK_LEARNERS if quick else LEARNERS).items():
        console.print(f"learning, {shape}", style="dim")
        runs = {core: learning(scale, core, fields) for core in CORES}
        turns = take_turns({core: run for core, (run, _) in runs.items()}, repeats, clock=thread_clock())
        for core, seconds in turns.items():
            row = {"shape": shape, "contender": core, "seconds": seconds}
            record["learning"].append({**row, "frames_per_second": runs[core][1] / seconds})
    return record


def bounds(task: Environment, quick: bool) -> dict[str, float]:
    """Mean reward per episode: the oracle's, its spread between episodes, and that of chance."""
    trial = Trial(8 if quick else BOUND_EPISODES, seed=0)
    oracle, chance = play_oracle(task, trial), play_randomly(task, trial)
    return {"oracle": oracle.mean(), "oracle_spread": oracle.std(), "chance": chance.mean()}


def stepping(task: Environment) -> Callable[[], None]:
    """The steps of one episode for all copies, including resets."""
    from feedback_transformer.environments.gym import BatchedEnv  # gymnasium is slow to import

    envs = BatchedEnv(task, COPIES)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(len(task.actions), size=(STEPS, COPIES))

    def run() -> None:
        for row in actions:
            envs.step(row)

    return run


def learning(scale: str, core: str, fields: dict[str, int]) -> tuple[Callable[[], None], int]:
    """A2C updates over one episode of maze navigation, from an empty memory to a full one; and their frames.

    All cores have the width and depth of the paper's attention models.
    """
    from feedback_transformer.training.a2c import ActorCritic

    run: RunConfig = preset("maze", scale, core)
    run = replace(run, train=replace(run.train, **fields))  # type: ignore[arg-type]
    trainer = ActorCritic(run, Path(), torch.device("cpu"))
    assert isinstance(run.task, Environment)
    updates = max(1, run.task.limit // run.train.bptt)

    def episode() -> None:
        for _ in range(updates):
            trainer.update()

    return episode, updates * run.train.bptt * run.train.batch_size
