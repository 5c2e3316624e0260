"""The paper's tables and figures, one file each: the runs that answer it, its claims, and its numbers as data."""

from __future__ import annotations

from feedback_transformer.experiments import (
    char_ptb,
    depth,
    enwik8,
    memory_composition,
    options,
    single_layer,
    wikitext,
    worlds,
)
from feedback_transformer.experiments.experiment import Experiment

ALL = (char_ptb, memory_composition, single_layer, depth, options, wikitext, enwik8)
EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in ALL}
EXPERIMENTS |= {experiment.name: experiment for experiment in worlds.EXPERIMENTS}
