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

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *toy_tasks.EXPERIMENTS,
        *copy_pairs.EXPERIMENTS,
        char_ptb.EXPERIMENT,
        memory_composition.EXPERIMENT,
        single_layer.EXPERIMENT,
        *depth.EXPERIMENTS,
        options.EXPERIMENT,
        wikitext.EXPERIMENT,
        enwik8.EXPERIMENT,
        multi30k.EXPERIMENT,
        iwslt.EXPERIMENT,
        translation.EXPERIMENT,
        summarization.EXPERIMENT,
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
