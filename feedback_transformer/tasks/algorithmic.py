"""Algorithmic task (paper, section 4.1.2): execute a program and say what it prints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from feedback_transformer.config import ConfigError, at_least, check_types, documented, fractions
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, label_accuracy

LARGEST = 10  # values stay in 1..10
INITIALISE, INCREMENT, DECREMENT, CONDITION, PRINT = range(5)
WORDS = ("END", ";", "=", "++", "--", "if", "<", ">", ":", "print")
END, SEMICOLON, EQUALS, PLUS, MINUS, IF, LESS, GREATER, COLON, PRINT_WORD = range(len(WORDS))
NUMBER = len(WORDS) - 1  # the token of number n is NUMBER + n
VARIABLE = len(WORDS) + LARGEST  # the token of variable i is VARIABLE + i
NAMES = "xyzuvwabcd"
WIDTH = 9  # tokens of the longest statement: if x < y : z = 7 ;
NOTHING = -1


@dataclass(frozen=True)
class Algorithmic(EpisodeTask):
    """Programs of `length` statements, separated by END; each print is labelled with the value it prints.

        input    x = 3 ; x ++ ; if x > 3 : y = 7 ; print y ; print x ; END
        label    - - - - - - - - - - - - - - - - -   -   - 7   -   - 4   -

    A statement is drawn uniformly from the currently possible ones among initialise, ++, --, if and print: a variable
    is initialised once, before it is used, and values stay in 1..10. A condition compares a variable by < or > with
    another variable or with a number from 1 to 10, half of the time each. It guards an initialise, a ++ or a --, which
    has no effect where the condition is false.

    The last fields make programs easier, for a curriculum; their defaults change nothing.
    """

    num_variables: int = documented(3, "number of variables in a program")
    length: int = documented(100, "statements in a program")
    min_length: int = documented(0, "statements in the shortest program; 0 means all have the same length")
    print_weight: float = documented(1.0, "how often a print is drawn, relative to ++")
    if_weight: float = documented(1.0, "how often an if is drawn, relative to ++")
    numbers: float = documented(0.5, "the fraction of conditions that compare with a number rather than a variable")
    printable: int = documented(0, "print only this many variables, the first ones; 0 means all")
    echo: float = documented(0.0, "in programs that echo, how often a statement is followed by a print of its variable")
    echoing: float = documented(0.5, "the fraction of programs that echo")

    def __post_init__(self) -> None:
        check_types(self)
        if not 1 <= self.num_variables <= len(NAMES):
            raise ConfigError(f"Algorithmic.num_variables = {self.num_variables} must be from 1 to {len(NAMES)}")
        if not 0 <= self.min_length <= self.length or self.length < 1:
            raise ConfigError(
                f"Algorithmic needs 0 <= min_length <= length and length >= 1, not "
                f"min_length = {self.min_length}, length = {self.length}"
            )
        if not 0 <= self.printable <= self.num_variables:
            raise ConfigError(f"Algorithmic.printable = {self.printable} must be from 0 to {self.num_variables}")
        at_least(self, 0, "print_weight", "if_weight")
        if not 0 < self.numbers <= 1:  # at 0, the first variable could never be compared with anything
            raise ConfigError(f"Algorithmic.numbers = {self.numbers} must be above 0 and at most 1")
        fractions(self, "echo", "echoing")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*WORDS, *map(str, range(1, LARGEST + 1)), *NAMES[: self.num_variables])

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(map(str, range(1, LARGEST + 1)))

    @property
    def metric(self) -> str:
        return "accuracy"

    def episodes(self, count: int, seed: int) -> Episodes:
        random = generator(seed)
        writer = _Writer(self, count, random)
        statements = [writer.statement() for _ in range(self.length)]
        tokens, labels = (np.stack(part, axis=1) for part in zip(*statements, strict=True))
        lengths = random.integers(self.min_length or self.length, self.length + 1, size=count)
        tokens[np.arange(self.length) >= lengths[:, None]] = NOTHING
        end, no_label = np.full((count, 1), END), np.full((count, 1), NO_LABEL)
        tokens = np.concatenate([tokens.reshape(count, -1), end], axis=1)
        labels = np.concatenate([labels.reshape(count, -1), no_label], axis=1)
        return Episodes.from_padded(tokens, labels, tokens != NOTHING)

    def held_out(self) -> Algorithmic:
        return Algorithmic(self.num_variables, self.length)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return {"accuracy": label_accuracy(model, episodes, device)}


class _Writer:
    """Writes `count` programs in parallel, a statement at a time, and executes them as it goes."""

    def __init__(self, task: Algorithmic, count: int, random: np.random.Generator) -> None:
        self.task, self.count, self.random = task, count, random
        self.values = np.zeros((count, task.num_variables), dtype=np.int64)  # 0: not initialised
        self.echoes = random.random(count) < task.echoing
        self.touched = np.full(count, NOTHING)
        self.weights = np.array([1.0, 1.0, 1.0, task.if_weight, task.print_weight])

    def statement(self) -> tuple[Array, Array]:
        """The next statement of every program: tokens and labels [count, WIDTH], padded with NOTHING."""
        tokens = np.full((self.count, WIDTH), NOTHING)
        labels = np.full((self.count, WIDTH), NO_LABEL)
        touched = np.full(self.count, NOTHING)
        kind, forced = self._kinds()
        todo = np.arange(self.count)
        while len(todo):
            draw = self._draw(todo, kind[todo], forced[todo])
            good = self._legal(draw)
            rows, draw = todo[good], {name: part[good] for name, part in draw.items()}
            self._write(rows, draw, tokens, labels)
            touched[rows] = np.where(draw["kind"] == PRINT, NOTHING, draw["target"])
            self._execute(rows, draw)
            todo = todo[~good]
        self.touched = touched
        return tokens, labels

    def _kinds(self) -> tuple[Array, Array]:
        """The kind of the next statement, uniform over those possible now; and the variable that an echo prints."""
        initialised = self.values > 0
        printable = initialised[:, : self.task.printable or None].any(axis=1)
        possible = [
            ~initialised.all(axis=1),
            (initialised & (self.values < LARGEST)).any(axis=1),
            (self.values > 1).any(axis=1),
            initialised.any(axis=1),
            printable,
        ]
        weights = np.stack(possible, axis=1) * self.weights
        limits = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        kind = (self.random.random((self.count, 1)) > limits).sum(axis=1)
        echo = self.echoes & (self.touched != NOTHING) & (self.random.random(self.count) < self.task.echo)
        echo &= initialised[np.arange(self.count), self.touched] & (self.touched < (self.task.printable or len(NAMES)))
        return np.where(echo, PRINT, kind), np.where(echo, self.touched, NOTHING)

    def _draw(self, rows: Array, kind: Array, forced: Array) -> dict[str, Array]:
        """One attempt per row at the details; where `kind` is CONDITION, `inner` is the kind that it guards."""
        n, random, variables = len(rows), self.random, self.task.num_variables
        target = np.where(forced == NOTHING, random.integers(0, variables, size=n), forced)
        left = random.integers(0, variables, size=n)
        right = random.integers(0, variables, size=n)
        constant = random.integers(1, LARGEST + 1, size=n)
        against_number = random.random(n) < self.task.numbers
        greater = random.random(n) < 0.5
        values, at = self.values[rows], np.arange(n)
        other = np.where(against_number, constant, values[at, right])
        holds = np.where(greater, values[at, left] > other, values[at, left] < other)
        return {
            "kind": kind,
            "inner": np.where(kind == CONDITION, random.integers(INITIALISE, DECREMENT + 1, size=n), kind),
            "target": target,
            "value": values[at, target],
            "new": random.integers(1, LARGEST + 1, size=n),
            "left": left,
            "right": np.where(against_number, NOTHING, right),
            "left_value": values[at, left],
            "right_value": other,
            "constant": constant,
            "greater": greater.astype(np.int64),
            "runs": ((kind != CONDITION) | holds).astype(np.int64),
        }

    def _legal(self, draw: dict[str, Array]) -> NDArray[np.bool_]:
        inner, value, runs = draw["inner"], draw["value"], draw["runs"] == 1
        initialised = value > 0
        legal = np.where(inner == INITIALISE, ~initialised, initialised)
        legal &= ~(runs & (inner == INCREMENT) & (value == LARGEST))
        legal &= ~(runs & (inner == DECREMENT) & (value == 1))
        condition = draw["kind"] == CONDITION
        legal &= ~condition | ((draw["left_value"] > 0) & (draw["right_value"] > 0) & (draw["left"] != draw["right"]))
        if self.task.printable:
            legal &= ~((inner == PRINT) & (draw["target"] >= self.task.printable))
        return legal

    def _write(self, rows: Array, draw: dict[str, Array], tokens: Array, labels: Array) -> None:
        condition = draw["kind"] == CONDITION
        right = np.where(draw["right"] == NOTHING, NUMBER + draw["constant"], VARIABLE + draw["right"])
        head = [np.full(len(rows), IF), VARIABLE + draw["left"], np.where(draw["greater"] == 1, GREATER, LESS), right]
        head.append(np.full(len(rows), COLON))
        for column, word in enumerate(head):
            tokens[rows[condition], column] = word[condition]
        at = np.where(condition, len(head), 0)
        inner, variable = draw["inner"], VARIABLE + draw["target"]
        first = np.where(inner == PRINT, PRINT_WORD, variable)
        second = np.select(
            [inner == INITIALISE, inner == INCREMENT, inner == DECREMENT], [EQUALS, PLUS, MINUS], variable
        )
        tokens[rows, at], tokens[rows, at + 1] = first, second
        initialise = inner == INITIALISE
        tokens[rows[initialise], at[initialise] + 2] = NUMBER + draw["new"][initialise]
        last = at + 2 + initialise
        tokens[rows, last] = SEMICOLON
        asks = inner == PRINT
        labels[rows[asks], last[asks]] = draw["value"][asks] - 1

    def _execute(self, rows: Array, draw: dict[str, Array]) -> None:
        inner, runs = draw["inner"], draw["runs"] == 1
        change = np.select([inner == INCREMENT, inner == DECREMENT], [1, -1], 0)
        result = np.where(inner == INITIALISE, draw["new"], draw["value"] + change)
        self.values[rows[runs], draw["target"][runs]] = result[runs]
