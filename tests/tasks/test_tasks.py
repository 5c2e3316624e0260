"""Every task against a tiny simulator that was written apart from it, and its scores against known models."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from feedback_transformer.config import ConfigError
from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.tasks import STATES, TASKS, TOYS, make_task
from feedback_transformer.tasks.algorithmic import Algorithmic
from feedback_transformer.tasks.copying import Copying
from feedback_transformer.tasks.counting import Counting
from feedback_transformer.tasks.random_walk import RandomWalk
from feedback_transformer.tasks.task import free_running_scores, spell
from tests.tasks.spelling import answers, words

CPU = torch.device("cpu")
EPISODES = {**TOYS, **STATES}


# ------------------------------------------------------------------------------------- all tasks alike


@pytest.mark.parametrize("name", TASKS)
def test_fields_of_another_type_are_refused(name: str) -> None:
    task = TASKS[name].task
    field = next(field.name for field in dataclasses.fields(task) if isinstance(getattr(task, field.name), int))
    with pytest.raises(ConfigError, match=rf"\.{field} "):
        dataclasses.replace(task, **{field: 2.5})


@pytest.mark.parametrize("name", EPISODES)
def test_the_same_seed_gives_the_same_episodes_and_another_seed_others(name: str) -> None:
    task = EPISODES[name].task
    first, again, other = task.episodes(5, 1), task.episodes(5, 1), task.episodes(5, 2)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.tokens, other.tokens)


@pytest.mark.parametrize("name", EPISODES)
def test_tokens_and_labels_are_symbols_of_the_task(name: str) -> None:
    task = EPISODES[name].task
    episodes = task.episodes(50, 0)
    assert episodes.tokens.min() >= 0
    assert episodes.tokens.max() < len(task.inputs)
    asked = episodes.labels[episodes.labels != NO_LABEL]
    assert asked.min() >= 0
    assert asked.max() < len(task.outputs)
    assert len(episodes) == 50


@pytest.mark.parametrize("name", EPISODES)
def test_ten_thousand_episodes_take_seconds(name: str) -> None:
    """Not a timing: a loop over statements in Python would need minutes."""
    begin = time.process_time()
    assert len(EPISODES[name].task.episodes(10_000, 0)) == 10_000
    assert time.process_time() - begin < 30


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'random-walk'"):
        make_task("random-wlak")


class Oracle(nn.Module):
    """A model that knows the answers by heart: it looks up what it has read so far."""

    def __init__(self, task: Any, episodes: Any) -> None:
        super().__init__()
        self.size = len(task.outputs)
        self.book: dict[tuple[int, ...], int] = {}
        for begin, end in episodes.bounds():
            for t in range(begin, end):
                if episodes.labels[t] != NO_LABEL:
                    self.book[tuple(episodes.tokens[begin : t + 1])] = int(episodes.labels[t])
        self.first = {int(episodes.tokens[start]) for start in episodes.starts}

    def forward(self, tokens: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        logits = []
        for t in range(tokens.shape[1]):
            if reset is not None and state is not None:
                state = [() if new else past for new, past in zip(reset[:, t], state, strict=True)]
            out, state = self.step(tokens[:, t], state)
            logits.append(out)
        return torch.stack(logits, dim=1), state

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        state = [()] * len(tokens) if state is None else state
        state = [(*past, int(token)) for past, token in zip(state, tokens, strict=True)]
        found = torch.tensor([self.book.get(past, 0) for past in state])
        return nn.functional.one_hot(found, self.size).double(), state


@pytest.mark.parametrize("task", [Copying(length=7, min_length=1), Copying(reverse=True, length=5)])
def test_who_knows_the_answers_scores_one_in_free_running(task: Any) -> None:
    episodes = task.episodes(40, 3)
    assert task.score(Oracle(task, episodes), episodes, CPU) == {"character": 1.0, "sequence": 1.0}


def test_one_wrong_character_costs_its_sequence() -> None:
    task = Copying(length=6)
    episodes = task.episodes(20, 3)
    oracle = Oracle(task, episodes)
    key = next(key for key in oracle.book if key[-1] == 11)  # at `go`: the first character of one answer
    oracle.book[key] = (oracle.book[key] + 1) % 10
    scores = task.score(oracle, episodes, CPU)
    assert scores["sequence"] == 19 / 20
    assert scores["character"] < 1.0


def test_a_count_is_right_exactly_if_it_is_so_in_free_running() -> None:
    task = Counting(length=9)
    episodes = task.episodes(40, 3)
    oracle = Oracle(task, episodes)
    assert task.score(oracle, episodes, CPU) == {"sequence": 1.0}
    for as_many in (2, 7):  # two counts end too early
        oracle.book[(2, *[0] * as_many, 3, *[1] * (as_many // 2))] = 4
    score = task.score(oracle, episodes, CPU)["sequence"]
    assert 0 < score < 1
    assert score == free_running_scores(oracle, episodes, CPU)["sequence"]


def test_label_accuracy_counts_labelled_positions_only() -> None:
    task = RandomWalk(length=5)
    episodes = task.episodes(8, 0)
    always_start = Oracle(task, episodes)
    always_start.book = {}  # answers cell 0, the corner, everywhere
    expected = (episodes.labels == 0).sum() / (8 * 5)
    assert task.score(always_start, episodes, CPU)["accuracy"] == expected


# ----------------------------------------------------------------------------------------- random walk


def simulate_walk(actions: list[str], size: int) -> list[str]:
    """The same walk by names: compass, columns and rows as they are written."""
    row, column, compass = size // 2, size // 2, "N"
    cells = []
    for action in actions:
        if action == "left":
            compass = {"N": "W", "W": "S", "S": "E", "E": "N"}[compass]
        elif action == "right":
            compass = {"N": "E", "E": "S", "S": "W", "W": "N"}[compass]
        else:
            new_row = row + {"N": -1, "S": 1}.get(compass, 0)
            new_column = column + {"W": -1, "E": 1}.get(compass, 0)
            if new_row in range(size) and new_column in range(size):
                row, column = new_row, new_column
        cells.append("abcdefgh"[row] + str(column + 1))
    return cells


@pytest.mark.parametrize("size", [1, 3, 8])
def test_walks_agree_with_the_simulator(size: int) -> None:
    task = RandomWalk(size=size, length=100)
    episodes = task.episodes(50, 7)
    for begin, end in episodes.bounds():
        actions = words(task, episodes.tokens[begin:end])
        assert actions[0] == "reset"
        assert answers(task, episodes.labels[begin:end]) == [None, *simulate_walk(actions[1:], size)]


def test_the_walk_of_the_docstring() -> None:
    actions = ["forward", "right", "forward", "forward", "left"]
    assert simulate_walk(actions, 3) == ["a2", "a2", "a3", "a3", "a3"]


def test_walks_are_as_in_the_paper() -> None:
    task = TOYS["random-walk"].task
    episodes = task.episodes(10_000, 0)
    assert len(episodes.tokens) == 10_000 * 101
    assert len(task.outputs) == 64
    share = Counter(words(task, episodes.tokens))
    assert all(abs(share[action] / 1e6 - 1 / 3) < 0.005 for action in ("forward", "left", "right"))


# ----------------------------------------------------------------------------------------- algorithmic


def execute(program: list[str]) -> list[str | None]:
    """A tiny interpreter over the words of a program; the printed value at each print's end, None elsewhere."""
    values: dict[str, int] = {}
    out: list[str | None] = []
    statement: list[str] = []
    for word in program:
        statement.append(word)
        printed = None
        if word == ";":
            body = statement[:-1]
            if body[0] == "if":
                left = values[body[1]]
                right = values[body[3]] if body[3].isalpha() else int(body[3])
                holds = left < right if body[2] == "<" else left > right
                assert body[4] == ":"
                body = body[5:]
                assert body[0] not in ("if", "print"), "conditions and prints are not nested"
                if not holds:
                    assert body[1] == "=" or body[0] in values, "a variable is used before it is initialised"
                    body = []
            if body and body[0] == "print":
                printed = str(values[body[1]])
            elif body and body[1] == "=":
                assert body[0] not in values, "a variable is initialised once"
                values[body[0]] = int(body[2])
            elif body:
                values[body[0]] += {"++": 1, "--": -1}[body[1]]
            assert all(1 <= value <= 10 for value in values.values())
            statement = []
        out.append(printed)
    return out


EASIER = Algorithmic(length=20, min_length=3, print_weight=2.0, if_weight=0.0, printable=1, echo=0.8)


@pytest.mark.parametrize("task", [TOYS["algorithmic-3"].task, TOYS["algorithmic-5"].task, Algorithmic(1), EASIER])
def test_programs_are_legal_and_print_what_the_interpreter_prints(task: Algorithmic) -> None:
    episodes = task.episodes(100, 11)
    for begin, end in episodes.bounds():
        program = words(task, episodes.tokens[begin:end])
        assert program[-1] == "END"
        count = program.count(";")
        assert (task.min_length or task.length) <= count <= task.length
        assert answers(task, episodes.labels[begin:end]) == [*execute(program[:-1]), None]


def test_statements_are_drawn_evenly() -> None:
    """Past the first statements all kinds but initialise are equally likely."""
    task = TOYS["algorithmic-3"].task
    program = spell(task, task.episodes(300, 5))
    kinds = Counter()
    for one in program.split("END"):
        for statement in one.split(" ; ")[20:]:
            first, *rest = [*statement.split(), ""]
            kinds[first if first in ("if", "print") else (rest[0] if rest else "")] += 1
    total = sum(kinds[kind] for kind in ("if", "print", "++", "--"))
    assert all(abs(kinds[kind] / total - 1 / 4) < 0.02 for kind in ("if", "print", "++", "--"))


def test_curriculum_fields_do_what_they_say() -> None:
    text = spell(EASIER, EASIER.episodes(50, 0))
    assert " if " not in text
    assert "print y" not in text
    assert "print x" in text


def test_conditions_compare_with_numbers_as_often_as_asked() -> None:
    for numbers in (0.2, 0.5, 1.0):
        task = Algorithmic(num_variables=3, length=100, numbers=numbers)
        found = [word.isdigit() for word in re.findall(r"if \w [<>] (\w+) :", spell(task, task.episodes(50, 0)))]
        assert abs(sum(found) / len(found) - numbers) < 0.1, numbers


def test_held_out_programs_are_the_official_ones() -> None:
    assert EASIER.held_out() == Algorithmic(num_variables=3, length=20)


# -------------------------------------------------------------------------- counting


@pytest.mark.parametrize("length", [1, 50, 1000])
def test_counting_asks_for_as_many(length: int) -> None:
    task = Counting(length=length)
    episodes = task.episodes(200, 4)
    counts = set()
    for begin, end in episodes.bounds():
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        n = read.index("go") - 1
        counts.add(n)
        assert read == ["begin"] + ["A"] * n + ["go"] + ["B"] * n
        assert labels == [None] * (n + 1) + ["B"] * n + ["end"]
    assert min(counts) >= 1
    assert max(counts) <= length
    assert max(counts) > 0.9 * length


def test_counting_can_practise_on_small_counts() -> None:
    """By the logarithm: a third of the counts to 1000 have one digit, and none lies outside. The test is as ever."""
    task = Counting(length=1000, small=1.0)
    counts = np.diff([*task.episodes(3000, 5).starts, len(task.episodes(3000, 5).tokens)]) // 2 - 1
    assert counts.min() == 1
    assert 950 < counts.max() <= 1000
    assert 0.3 < (counts < 10).mean() < 0.37
    assert task.held_out() == Counting(length=1000)
    assert (task.evaluation("test", 50, 0).tokens == Counting(length=1000).evaluation("test", 50, 0).tokens).all()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("random-walk", "size", "0"),
        ("copy", "length", "0"),
        ("counting-50", "length", "-1"),
        ("counting-1k", "small", "2"),
        ("copy", "min_length", "41"),
        ("parity", "min_length", "41"),
        ("brackets", "min_test_length", "0"),
        ("s5", "generators", "some"),
        ("s5-swaps", "test_length", "0"),
        ("flip-flop", "length", "7"),
        ("flip-flop", "ignore", "1.5"),
        ("recall", "num_pairs", "65"),
        ("recall", "length", "47"),
    ],
)
def test_impossible_tasks_are_a_sentence(name: str, field: str, value: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make_task(name, {field: value})
