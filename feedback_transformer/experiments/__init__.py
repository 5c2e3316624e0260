"""The paper's tables and figures: the runs that reproduce each, its claims, and its numbers as data.

A file for each, or for a table of many tasks."""

from __future__ import annotations

from feedback_transformer.experiments import (
    char_ptb,
    copy_pairs,
    corridor,
    depth,
    enwik8,
    iwslt,
    maze,
    memory_composition,
    multi30k,
    options,
    recurrent_comparison,
    single_layer,
    state_tracking,
    summarization,
    toy_tasks,
    translation,
    water_maze,
    wikitext,
)
from feedback_transformer.experiments.experiment import Experiment

CHAPTERS: dict[str, tuple[Experiment, ...]] = {
    "Toy tasks": (*toy_tasks.EXPERIMENTS, *copy_pairs.EXPERIMENTS),
    "Language modelling": (
        char_ptb.EXPERIMENT,
        memory_composition.EXPERIMENT,
        single_layer.EXPERIMENT,
        *depth.EXPERIMENTS,
        options.EXPERIMENT,
        wikitext.EXPERIMENT,
        enwik8.EXPERIMENT,
    ),
    "Translation and summarization": (
        multi30k.EXPERIMENT,
        iwslt.EXPERIMENT,
        translation.EXPERIMENT,
        recurrent_comparison.EXPERIMENT,
        summarization.EXPERIMENT,
    ),
    "Reinforcement learning": (corridor.EXPERIMENT, maze.EXPERIMENT, *water_maze.EXPERIMENTS),
    "State tracking, beyond the paper": state_tracking.EXPERIMENTS,
}
EXPERIMENTS = {experiment.name: experiment for chapter in CHAPTERS.values() for experiment in chapter}

# Several under one name, for `reproduce`; a chapter with a name here also has one table of all its experiments.
SUITES = {"toy-tasks": "Toy tasks", "state-tracking": "State tracking, beyond the paper"}
GROUPS = {
    **{name: [experiment.name for experiment in CHAPTERS[chapter]] for name, chapter in SUITES.items()},
    "all": list(EXPERIMENTS),
}
