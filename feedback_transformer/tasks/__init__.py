"""The tasks by name; one file per task has its data and its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from feedback_transformer.config import ConfigError, nearest, override
from feedback_transformer.environments.corridor import Corridor
from feedback_transformer.environments.maze import Maze
from feedback_transformer.environments.water_maze import WaterMaze
from feedback_transformer.tasks.algorithmic import Algorithmic
from feedback_transformer.tasks.associative_recall import AssociativeRecall
from feedback_transformer.tasks.copying import Copying
from feedback_transformer.tasks.copying_pairs import CopyingPairs
from feedback_transformer.tasks.counting import Counting
from feedback_transformer.tasks.flip_flop import FlipFlop
from feedback_transformer.tasks.formal_languages import ModularArithmetic, Parity
from feedback_transformer.tasks.language import Language
from feedback_transformer.tasks.permutations import Permutations
from feedback_transformer.tasks.random_walk import RandomWalk
from feedback_transformer.tasks.task import Task
from feedback_transformer.tasks.translation import Translation

__all__ = ["CORPORA", "PAIRS", "PAIR_TOYS", "STATES", "TASKS", "TOYS", "WORLDS", "Task", "TaskEntry", "make_task"]


@dataclass(frozen=True)
class TaskEntry:
    """A task under its name, with one line for `feedback-transformer list tasks`."""

    task: Task
    summary: str


TOYS: dict[str, TaskEntry] = {
    "random-walk": TaskEntry(RandomWalk(), "where is the agent, after turns and steps in an 8 x 8 grid?"),
    "algorithmic-3": TaskEntry(
        Algorithmic(num_variables=3), "execute a program with 3 variables and say what it prints"
    ),
    "algorithmic-5": TaskEntry(Algorithmic(num_variables=5), "the same with 5 variables"),
    "copy": TaskEntry(Copying(reverse=False), "copy 400 digits, trained on 40"),
    "reverse": TaskEntry(Copying(reverse=True), "reverse 400 digits, trained on 40"),
    "counting-50": TaskEntry(Counting(length=50), "write as many Bs as there were As, up to 50"),
    "counting-1k": TaskEntry(Counting(length=1000), "write as many Bs as there were As, up to 1000"),
}

STATES: dict[str, TaskEntry] = {
    "parity": TaskEntry(Parity(), "is the number of ones even? trained on up to 40 bits, tested on up to 256"),
    "arithmetic": TaskEntry(
        ModularArithmetic(), "evaluate an expression modulo 5; trained on up to 40 symbols, tested on up to 256"
    ),
    "brackets": TaskEntry(ModularArithmetic(brackets=True), "the same with brackets"),
    "s5-swaps": TaskEntry(Permutations(), "the order of five things after many swaps; trained on 32, tested on 256"),
    "s5": TaskEntry(Permutations(generators="all"), "the same with all 120 permutations"),
    "flip-flop": TaskEntry(FlipFlop(), "recall the last bit written, however long ago"),
    "recall": TaskEntry(AssociativeRecall(), "recall the values of 16 keys, asked for in any order"),
}

CORPORA: dict[str, TaskEntry] = {
    "ptb-char": TaskEntry(Language("data/ptb-char"), "predict the next character of the Penn Treebank"),
    "enwik8": TaskEntry(Language("data/enwik8"), "predict the next byte of Wikipedia"),
    "wikitext-103": TaskEntry(Language("data/wikitext-103"), "predict the next word of Wikipedia, large corpus"),
    "wikitext-2": TaskEntry(Language("data/wikitext-2"), "predict the next word of Wikipedia, small corpus"),
    "text": TaskEntry(Language(), "predict the next token of your own text, data=FOLDER"),
}

WORLDS: dict[str, TaskEntry] = {
    "corridor": TaskEntry(Corridor(), "walk to the door with the colour that was shown at the start"),
    "maze": TaskEntry(Maze(), "find objects in a maze, one after the other, going forward and turning"),
    "maze-easy": TaskEntry(Maze(turns=False), "the same, going up, right, down and left"),
    "water-maze": TaskEntry(WaterMaze(), "find the same goal in a grid again and again"),
}

PAIR_TOYS: dict[str, TaskEntry] = {
    "copy-pairs": TaskEntry(CopyingPairs(reverse=False), "copy, with an encoder that reads all digits first"),
    "reverse-pairs": TaskEntry(CopyingPairs(reverse=True), "reverse, with an encoder that reads all digits first"),
}

PAIRS: dict[str, TaskEntry] = {
    "multi30k": TaskEntry(Translation("data/multi30k"), "translate image captions, English to German"),
    "iwslt14-deen": TaskEntry(
        Translation("data/iwslt14-deen", tokenization="none"), "translate talks, German to English"
    ),
    "wmt14-ende": TaskEntry(Translation("data/wmt14-ende"), "translate news, English to German"),
    "cnn-dailymail": TaskEntry(
        Translation("data/cnn-dailymail", "rouge", block_ngrams=3, shortest=50, length_ratio=0.0, extra_length=140),
        "summarize news articles",
    ),
    "pairs": TaskEntry(Translation(), "translate your own pairs, data=FOLDER"),
}

TASKS = {**TOYS, **STATES, **CORPORA, **PAIR_TOYS, **PAIRS, **WORLDS}


def make_task(name: str, overrides: Mapping[str, str] | None = None) -> Task:
    """The task of that name, with the fields in `overrides` (`{"length": "50"}`) changed."""
    if name not in TASKS:
        raise ConfigError(f"there is no task {name!r}{nearest(name, TASKS)}")
    return override(TASKS[name].task, overrides or {})
