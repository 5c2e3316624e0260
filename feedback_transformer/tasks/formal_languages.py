"""Formal languages: parity and modular arithmetic, trained on short strings and tested on long ones.

Not in the paper. The settings are those of arXiv 2411.12537: training strings of 3 to 40 symbols, test strings of 40 to
256, one answer per string, accuracy scaled so that 0 is chance and 1 is perfect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, check_types, documented
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, generator, label_accuracy

MODULUS = 5
OPERATORS = "+-*"
SYMBOLS = ("0", "1", "2", "3", "4", *OPERATORS, "(", ")")
PLUS, MINUS, TIMES, OPEN, CLOSE = range(MODULUS, len(SYMBOLS))


@dataclass(frozen=True)
class FormalLanguage(EpisodeTask):
    """Short strings to train on and long ones to test on, with a question at the end of each."""

    length: int = documented(40, "symbols in the longest training string")
    min_length: int = documented(3, "symbols in the shortest training string")
    test_length: int = documented(256, "symbols in the longest test string")
    min_test_length: int = documented(40, "see test_length")

    def __post_init__(self) -> None:
        check_types(self)
        for least, most in (("min_length", "length"), ("min_test_length", "test_length")):
            if not 1 <= getattr(self, least) <= getattr(self, most):
                raise ConfigError(
                    f"{type(self).__name__} needs 1 <= {least} <= {most}, not "
                    f"{least} = {getattr(self, least)}, {most} = {getattr(self, most)}"
                )

    @property
    def metric(self) -> str:
        return "scaled"

    @property
    def begin(self) -> int:
        return self.inputs.index("begin")

    def held_out(self) -> FormalLanguage:
        return replace(self, length=self.test_length, min_length=self.min_test_length)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return scaled_scores(label_accuracy(model, episodes, device, self.begin), len(self.outputs))


@dataclass(frozen=True)
class Parity(FormalLanguage):
    """Is the number of ones even or odd?

        input    begin  1  0  1  1   =
        label      -    -  -  -  -  odd

    `accuracy` is the fraction of right answers, `scaled` the same with chance at 0 and perfection at 1.
    """

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("0", "1", "begin", "=")

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("even", "odd")

    def episodes(self, count: int, seed: int) -> Episodes:
        random = generator(seed)
        lengths = random.integers(self.min_length, self.length + 1, size=count)
        bits = random.integers(0, 2, size=int(lengths.sum()))
        firsts = np.cumsum(lengths) - lengths
        return questions(bits, lengths, np.add.reduceat(bits, firsts) % 2, self.begin)


@dataclass(frozen=True)
class ModularArithmetic(FormalLanguage):
    """The value of an expression modulo 5, multiplication before addition and subtraction:

        input    begin  2  -  3  -  3  *  2  =
        label      -    -  -  -  -  -  -  -  3

    With brackets, every operation has its own pair, and a digit may be negative, bracketed or both:

        input    begin  (  (  -  4  )  *  (  2  +  1  )  )  =
        label      -    -  -  -  -  -  -  -  -  -  -  -  -  3

    (without brackets, a string has an odd number of symbols).
    """

    brackets: bool = documented(False, "put operations in brackets")

    def __post_init__(self) -> None:
        super().__post_init__()
        for shortest, longest in (("min_length", "length"), ("min_test_length", "test_length")):
            if not self.brackets and (only := getattr(self, shortest)) == getattr(self, longest) and only % 2 == 0:
                raise ConfigError(f"ModularArithmetic.{longest} = {only} = {shortest} must be odd without brackets")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*SYMBOLS, "begin", "=")

    @property
    def outputs(self) -> tuple[str, ...]:
        return SYMBOLS[:MODULUS]

    def episodes(self, count: int, seed: int) -> Episodes:
        random = generator(seed)
        if not self.brackets:
            digits = random.integers((self.min_length + 2) // 2, (self.length + 1) // 2 + 1, size=count)
            return questions(*chains(digits, random), self.begin)
        lengths = random.integers(self.min_length, self.length + 1, size=count)
        made = [bracketed(int(length), random) for length in lengths]
        symbols = np.concatenate([np.array(expression) for expression, _ in made])
        return questions(symbols, lengths, np.array([value for _, value in made]), self.begin)


def chains(digits: Array, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """Expressions without brackets, of `digits` digits each: symbols end to end, their lengths, their values."""
    width = int(digits.max())
    numbers = random.integers(0, MODULUS, size=(len(digits), width))
    operators = random.integers(PLUS, TIMES + 1, size=(len(digits), width))  # operator i stands in front of digit i
    total, term = np.zeros_like(digits), numbers[:, 0]
    values = [term]
    for operator, number in zip(operators.T[1:], numbers.T[1:], strict=True):
        times = operator == TIMES
        total = np.where(times, total, total + term) % MODULUS
        signed = np.where(operator == MINUS, -number, number)
        term = np.where(times, term * number, signed) % MODULUS
        values.append((total + term) % MODULUS)
    symbols = np.stack([operators, numbers], axis=2).reshape(len(digits), -1)[:, 1:]
    real = np.arange(2 * width - 1) < 2 * digits[:, None] - 1
    return symbols[real], 2 * digits - 1, np.stack(values, axis=1)[np.arange(len(digits)), digits - 1]


def bracketed(length: int, random: np.random.Generator) -> tuple[list[int], int]:
    """An expression of exactly `length` symbols, and its value; one too short for an operation is a single digit."""
    if length <= 4:
        digit = int(random.integers(MODULUS))
        negative, closed = length in (2, 4), length >= 3
        return [OPEN] * closed + [MINUS] * negative + [digit] + [CLOSE] * closed, (
            -digit if negative else digit
        ) % MODULUS
    first = int(random.integers(1, length - 3))
    operator = int(random.integers(PLUS, TIMES + 1))
    (left, a), (right, b) = bracketed(first, random), bracketed(length - 3 - first, random)
    value = a + b if operator == PLUS else a - b if operator == MINUS else a * b
    return [OPEN, *left, operator, *right, CLOSE], value % MODULUS


def questions(symbols: Array, lengths: Array, answers: Array, begin: int) -> Episodes:
    """Strings end to end -> episodes `begin, string, =` with the answer as the label of `=`, the token begin + 1."""
    ends = np.cumsum(lengths + 2)
    starts = ends - lengths - 2
    tokens = np.empty(int(ends[-1]), dtype=np.int64)
    labels = np.full(len(tokens), NO_LABEL)
    inside = np.ones(len(tokens), dtype=bool)
    inside[starts] = inside[ends - 1] = False
    tokens[inside], tokens[starts], tokens[ends - 1] = symbols, begin, begin + 1
    labels[ends - 1] = answers
    return Episodes(tokens, labels, starts)


def scaled_scores(accuracy: float, classes: int) -> dict[str, float]:
    """Accuracy as it is, and scaled so that guessing gives 0.

    >>> scaled_scores(0.6, 5)
    {'scaled': 0.5, 'accuracy': 0.6}
    """
    return {"scaled": (accuracy * classes - 1) / (classes - 1), "accuracy": accuracy}
