"""The tasks of tracking a state: each label against a slow computation that was written apart from the task."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from feedback_transformer.config import ModelConfig
from feedback_transformer.data.episodes import NO_LABEL, resets
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.tasks import STATES
from feedback_transformer.tasks.associative_recall import AssociativeRecall
from feedback_transformer.tasks.flip_flop import FlipFlop
from feedback_transformer.tasks.formal_languages import ModularArithmetic, Parity
from feedback_transformer.tasks.permutations import Permutations
from feedback_transformer.tasks.task import predict
from tests.tasks.test_tasks import CPU, Oracle, answers, words


@pytest.mark.parametrize("task", [Parity(min_length=1, length=9), Parity().held_out()])
def test_parity_counts_the_ones(task: Parity) -> None:
    episodes = task.episodes(300, 1)
    lengths = set()
    for begin, end in episodes.bounds():
        first, *bits, last = words(task, episodes.tokens[begin:end])
        assert (first, last) == ("begin", "=")
        lengths.add(len(bits))
        expected = "odd" if bits.count("1") % 2 else "even"
        assert answers(task, episodes.labels[begin:end]) == [None] * (1 + len(bits)) + [expected]
    assert task.min_length <= min(lengths) <= max(lengths) <= task.length
    assert len(lengths) > 8


@pytest.mark.parametrize("brackets", [False, True])
@pytest.mark.parametrize(("least", "most"), [(1, 12), (3, 40), (40, 256)])
def test_arithmetic_gives_what_python_gives(brackets: bool, least: int, most: int) -> None:
    task = ModularArithmetic(brackets=brackets, length=most, min_length=least)
    episodes = task.episodes(200, 2)
    lengths, values = set(), Counter()
    for begin, end in episodes.bounds():
        first, *symbols, last = words(task, episodes.tokens[begin:end])
        assert (first, last) == ("begin", "=")
        assert brackets or "(" not in symbols
        lengths.add(len(symbols))
        value = str(eval("".join(symbols)) % 5)
        values[value] += 1
        assert answers(task, episodes.labels[begin:end]) == [None] * (1 + len(symbols)) + [value]
    assert least <= min(lengths) <= max(lengths) <= most
    assert max(lengths) > 0.9 * most
    assert len(values) == 5


def test_formal_languages_are_learned_up_to_40_and_asked_from_40_to_256() -> None:
    for name in ("parity", "arithmetic", "brackets"):
        task = STATES[name].task
        for own, low, high in ((task, 3, 40), (task.held_out(), 40, 256)):
            sizes = np.diff([*own.episodes(2000, 3).starts, len(own.episodes(2000, 3).tokens)]) - 2
            assert low <= sizes.min() <= low + 1
            assert high - 1 <= sizes.max() <= high


def test_scaled_accuracy_is_zero_for_a_guess_and_one_for_all_right() -> None:
    task = ModularArithmetic(length=9)
    episodes = task.episodes(400, 5)
    oracle = Oracle(task, episodes)
    oracle.book = {key[key.index(10) :]: value for key, value in oracle.book.items()}
    assert task.score(OneByOne(oracle), episodes, CPU) == {"scaled": 1.0, "accuracy": 1.0}
    oracle.book = {}  # always 0
    share = float((episodes.labels == 0).sum()) / 400
    assert task.score(OneByOne(oracle), episodes, CPU)["scaled"] == pytest.approx((share - 0.2) / 0.8)


class OneByOne(Oracle):
    """An oracle that begins anew at `begin`, since it reads several episodes in a row."""

    def __init__(self, oracle: Oracle) -> None:
        super(Oracle, self).__init__()
        self.size, self.book, self.first = oracle.size, oracle.book, oracle.first

    def step(self, tokens, state=None):  # type: ignore[no-untyped-def]
        state = [
            () if int(token) in self.first else past
            for token, past in zip(tokens, state or [()] * len(tokens), strict=True)
        ]
        return super().step(tokens, state)


def simulate_row(symbols: list[str]) -> list[str]:
    """Five things, rearranged one symbol after the other, by hand."""
    row, seen = list("12345"), []
    for symbol in symbols:
        row = [row[int(place) - 1] for place in symbol]
        seen.append("".join(row))
    return seen


@pytest.mark.parametrize(("name", "symbols"), [("s5-swaps", 10), ("s5", 120)])
def test_permutations_are_applied_one_after_the_other(name: str, symbols: int) -> None:
    task = STATES[name].task
    assert len(task.inputs) == 1 + symbols
    assert len(set(task.outputs)) == 120
    for own in (task, task.held_out()):
        episodes = own.episodes(20, 4)
        for begin, end in episodes.bounds():
            first, *read = words(own, episodes.tokens[begin:end])
            assert first == "begin"
            assert len(read) == own.length
            assert answers(own, episodes.labels[begin:end]) == [None, *simulate_row(read)]
    assert task.held_out().length == 256


def test_swaps_exchange_two_places_and_all_are_drawn_evenly() -> None:
    task = Permutations(length=100)
    assert all(sum(a != b for a, b in zip(name, "12345", strict=True)) == 2 for name in task.inputs[1:])
    share = Counter(task.episodes(500, 0).tokens.tolist())
    assert all(abs(share[token] / 50_000 - 0.1) < 0.01 for token in range(1, 11))


def test_the_score_of_permutations_tells_the_last_answers_apart() -> None:
    task = Permutations(length=4)
    episodes = task.episodes(16, 0)
    oracle = Oracle(task, episodes)
    wrong = next(key for key in oracle.book if len(key) == 5)  # the last answer of one episode
    oracle.book[wrong] = (oracle.book[wrong] + 1) % 120
    assert task.score(OneByOne(oracle), episodes, CPU) == {"accuracy": 1 - 1 / 64, "last": 1 - 1 / 16}


@pytest.mark.parametrize("ignore", [0.1, 0.8, 0.98])
def test_a_flip_flop_reads_what_was_written_last(ignore: float) -> None:
    task = FlipFlop(length=128, ignore=ignore)
    episodes = task.episodes(60, 6)
    kinds = Counter()
    for begin, end in episodes.bounds():
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        assert (read[0], read[-2]) == ("write", "read")
        stored = None
        for instruction, bit, asked, nothing in zip(read[::2], read[1::2], labels[::2], labels[1::2], strict=True):
            assert nothing is None
            assert asked == (stored if instruction == "read" else None)
            if instruction == "read":
                assert bit == stored
            if instruction == "write":
                stored = bit
        kinds.update(read[2:-2:2])
    total = sum(kinds.values())
    assert abs(kinds["ignore"] / total - ignore) < 0.03
    assert abs(kinds["read"] - kinds["write"]) / total < 0.04


def test_flip_flops_are_scored_on_the_sparse_and_the_dense_language() -> None:
    task = STATES["flip-flop"].task
    sets = task.evaluation("test", 40, 0)
    shares = {name: float((some.tokens == 4).sum()) / (40 * 256) for name, some in sets.items()}
    assert shares["sparse"] == pytest.approx(0.98, abs=0.02)
    assert shares["dense"] == pytest.approx(0.1, abs=0.02)
    assert not np.array_equal(sets["sparse"].tokens, task.evaluation("validation", 40, 0)["sparse"].tokens)


def test_recall_asks_every_key_once_for_its_value() -> None:
    task = AssociativeRecall(num_pairs=5, num_keys=9, num_values=7, length=30)
    episodes = task.episodes(200, 8)
    places = Counter()
    for begin, end in episodes.bounds():
        first, *read = words(task, episodes.tokens[begin:end])
        labels = answers(task, episodes.labels[begin:end])[1:]
        assert first == "begin"
        assert len(read) == 30
        book = dict(zip(read[:10:2], read[1:10:2], strict=True))
        assert len(book) == 5
        assert labels[:10] == [None] * 10
        asked = [(symbol, label) for symbol, label in zip(read[10:], labels[10:], strict=True) if symbol != "."]
        assert sorted(asked) == sorted(book.items())
        assert labels[10:] == [book.get(symbol) for symbol in read[10:]]
        places.update(place for place, symbol in enumerate(read[10:]) if symbol != ".")
    assert places[0] > places[19], "soon is more likely than late"
    assert (episodes.labels != NO_LABEL).sum() == 5 * 200


# ------------------------------------------------------------------------------------- an empty memory


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
@pytest.mark.parametrize("task", [Parity(length=5), Permutations(length=4), AssociativeRecall(2, 4, 4, 8)])
def test_what_is_answered_depends_on_its_own_episode_only(task: Any, core: str) -> None:
    """In a lane of several: each begins with an empty memory."""
    torch.manual_seed(0)
    model = LanguageModel(ModelConfig(core=core, model_dim=16), task.input_size, task.output_size).double()
    episodes = task.episodes(6, 0)
    tokens = torch.from_numpy(episodes.tokens)[None]
    with torch.no_grad():
        together, _ = model(tokens, None, resets(tokens, task.begin))
        carried, _ = model(tokens)
        assert not torch.allclose(together, carried)
        for begin, end in episodes.bounds():
            torch.testing.assert_close(together[:, begin:end], model(tokens[:, begin:end])[0])
    assert torch.equal(predict(model, tokens, CPU, task.begin), together.argmax(-1))
    assert (tokens == task.begin).sum() == len(episodes)
