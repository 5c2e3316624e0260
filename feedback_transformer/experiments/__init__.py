"""The paper's tables and figures, one file each: the runs that answer it, its claims, and its numbers as data."""

from __future__ import annotations

from feedback_transformer.experiments import (
    char_ptb,
    copy_pairs,
    depth,
    enwik8,
    iwslt,
    memory_composition,
    multi30k,
    options,
    single_layer,
    state_tracking,
    summarization,
    toy_tasks,
    translation,
    wikitext,
    worlds,
)
from feedback_transformer.experiments.experiment import Experiment

ALL = (
    char_ptb,
    memory_composition,
    single_layer,
    depth,
    options,
    wikitext,
    enwik8,
    multi30k,
    iwslt,
    translation,
    summarization,
)
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *toy_tasks.EXPERIMENTS,
        *copy_pairs.EXPERIMENTS,
        *(module.EXPERIMENT for module in ALL),
        *worlds.EXPERIMENTS,
        *state_tracking.EXPERIMENTS,
    )
}

# Several under one name, for `reproduce`.
GROUPS = {
    "toy-tasks": [experiment.name for experiment in (*toy_tasks.EXPERIMENTS, *copy_pairs.EXPERIMENTS)],
    "state-tracking": [experiment.name for experiment in state_tracking.EXPERIMENTS],
    "all": list(EXPERIMENTS),
}
