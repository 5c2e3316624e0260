"""Estimates what a run will cost, from the records of other seeds or from a few updates."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from feedback_transformer.config import ConfigError, TrainConfig
from feedback_transformer.data.pairs import ROWS
from feedback_transformer.experiments.experiment import Variant
from feedback_transformer.tasks.pair_task import PairTask
from feedback_transformer.training.checkpoint import make_folder, write_json
from feedback_transformer.training.loading import make_model
from feedback_transformer.training.record import processor, read_record
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.supervised import Trainer, trainer_of
from feedback_transformer.training.tiny import tiny_is_zero

COSTS = "costs.json"  # beside the records
WORK = 1e10  # tokens times parameters of an update that takes a core some seconds
FILLING = 32  # at most this many updates to fill the memory first
TIMED = 2


class Cost(NamedTuple):
    """The cost of a whole training run, without evaluations."""

    parameters: int
    updates: int
    minutes: float  # on one core of this machine
    loss: float  # at the last update taken
    run: str = ""  # which run it is of: its hash
    processor: str = ""

    def known_by(self) -> str:
        return f"two of {self.updates:,} updates; {self.parameters:,} parameters"


def run_hash(run: RunConfig) -> str:
    """The same for all seeds of a run, wherever its data is. Defaults do not count, so a new field changes nothing."""
    told: dict[str, Any] = {"task_name": run.task_name}
    for section, config in run.sections().items():
        usual = {field.name: field.default for field in fields(config)}
        told[section] = {name: value for name, value in asdict(config).items() if value != usual[name]}
    told["task"].pop("data", None)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def kept_costs(results: Path) -> dict[str, Cost]:
    """The costs that were measured before, by the variant's key."""
    path = results / COSTS
    try:
        return {key: Cost(**cost) for key, cost in read_record(path).items()} if path.exists() else {}
    except TypeError as error:
        raise ConfigError(f"{path} is damaged ({error}); remove it, and measure again with --measure") from None


def known_costs(variants: Iterable[Variant], results: Path) -> dict[str, Cost]:
    """Those of just these runs: the cost of one that has changed since says nothing."""
    costs = kept_costs(results)
    return {v.key: costs[v.key] for v in variants if v.key in costs and costs[v.key].run == run_hash(v.run)}


def keep_cost(variant: Variant, cost: Cost, results: Path) -> None:
    make_folder(results)
    costs = kept_costs(results) | {variant.key: cost._replace(run=run_hash(variant.run), processor=processor())}
    write_json(results / COSTS, {key: cost._asdict() for key, cost in sorted(costs.items())})


def recorded_minutes(variant: Variant, results: Path) -> float | None:
    """The mean cost of the finished seeds; None if there are none."""
    records = variant.records(results)
    return sum(record["cpu_seconds"] for record in records) / len(records) / 60 if records else None


def measured_cost(run: RunConfig) -> Cost:
    """Build the model, fill its memory, take two updates, and multiply.

    Where a batch would take longer than seconds, fewer rows are used and the time is scaled in proportion. The task is
    the last of the curriculum and the block the longest.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer, share = small_trainer(run)
        blocks = math.ceil(run.model.memory_size / run.train.bptt)
        for _ in range(1 if isinstance(run.task, PairTask) else min(blocks, FILLING)):
            trainer.update()
        begin = time.process_time()
        with tiny_is_zero():
            for _ in range(TIMED):
                trainer.update()
        seconds = (time.process_time() - begin) / TIMED
    finally:
        torch.set_num_threads(threads)
    updates = run.train.steps + run.train.finetune_steps
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return Cost(parameters, updates, updates * seconds / share * mean_block(run.train) / 60, trainer.losses[-1])


def small_trainer(run: RunConfig) -> tuple[Trainer, float]:
    """The run with as many rows as a core can manage, and what share of the batch that is."""
    few = {"curriculum": (), "validation_episodes": 1, "accumulate": 1, "bptt_start": 0, "batch_size": 1}
    probe = replace(run, train=replace(run.train, **few))  # type: ignore[arg-type]
    with torch.device("meta"):
        model = make_model(run)
    tokens = WORK / sum(parameter.numel() for parameter in model.parameters())
    if isinstance(run.task, PairTask):
        longest = run.task.training_pairs(run.train.train_episodes, run.seed, 0).longest.max()
        size = int(min(run.train.batch_tokens, max(ROWS * longest, tokens)))
        train, share = replace(probe.train, batch_tokens=size), size / run.train.batch_tokens
    else:
        rows = int(min(run.train.batch_size, max(1, tokens / run.train.bptt)))
        train, share = replace(probe.train, batch_size=rows), rows / run.train.batch_size
    return trainer_of(run)(replace(probe, train=train), Path(), torch.device("cpu")), share


def mean_block(train: TrainConfig) -> float:
    """The mean length of a block, as a fraction of the longest."""
    short = train.bptt_warmup * train.steps / (train.steps + train.finetune_steps) if train.bptt_start else 0.0
    return short * train.bptt_start / train.bptt + 1 - short
