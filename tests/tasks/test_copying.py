"""Copy and reverse: what is asked for, where, and what differs in training."""

from __future__ import annotations

import numpy as np
import pytest

from feedback_transformer.config import ConfigError
from feedback_transformer.tasks import TOYS
from feedback_transformer.tasks.copying import Copying
from tests.tasks.spelling import answers, words


@pytest.mark.parametrize("reverse", [False, True])
def test_copying_asks_for_the_digits_and_an_end(reverse: bool) -> None:
    task = Copying(reverse=reverse, length=9, min_length=1)
    episodes = task.episodes(50, 2)
    for begin, end in episodes.bounds():
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        go = read.index("go")
        digits = read[1:go]
        expected = list(reversed(digits)) if reverse else digits
        assert read == ["begin", *digits, "go", *expected]
        assert labels == [None] * go + [*expected, "end"]


def test_copying_is_trained_at_40_and_tested_at_400() -> None:
    for name in ("copy", "reverse"):
        task = TOYS[name].task
        assert task.episodes(3, 0).bounds()[0] == (0, 2 * 40 + 2)
        assert task.held_out().episodes(3, 0).bounds()[0] == (0, 2 * 400 + 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_chained_strings_share_a_memory_in_training_only(reverse: bool) -> None:
    task = Copying(reverse=reverse, length=6, min_length=1, chained=3)
    episodes = task.episodes(10, 2)
    for number, (begin, end) in enumerate(episodes.bounds()):
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        assert read[0] == ("next" if number % 3 else "begin")
        go = read.index("go")
        asked = bool(number % 3 == 0 or reverse)  # where a chained copy begins, nothing can be looked up
        assert labels[go:] == [*(read[go + 1 :][:1] if asked else [None]), *read[go + 2 :], "end"]
    assert "next" not in words(task, task.held_out().episodes(10, 2).tokens)


def test_plain_strings_have_few_digits_in_training_only() -> None:
    task = Copying(length=40, plain=0.5)
    kinds = np.array([len(set(string.tolist())) for string in task.strings(400, 0)])
    assert 0.4 < (kinds <= 5).mean() < 0.6
    assert kinds.min() == 2
    seen = np.bincount(np.concatenate(task.strings(400, 0)), minlength=10)
    assert seen.min() > 0.8 * seen.mean()  # no digit is rarer than another
    assert task.held_out().plain == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_answers_that_begin_anywhere_are_asked_for_once_their_place_is_known(reverse: bool) -> None:
    task = Copying(reverse=reverse, length=12, min_length=1, plain=0.5, anywhere=0.6)
    episodes = task.episodes(400, 3)
    starts, shown = [], []
    for begin, end in episodes.bounds():
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        go = read.index("go")
        whole, answer = "".join(read[1:go][:: -1 if reverse else 1]), "".join(read[go + 1 :])
        assert whole.endswith(answer)
        asked = labels[go:]
        unknown = next((n for n, label in enumerate(asked) if label), len(asked))
        assert asked[unknown:] == [*answer, "end"][unknown:]
        if unknown:  # never before the place is known: all shorter beginnings occur elsewhere too
            places = [sum(whole.startswith(answer[:n], at) for at in range(go)) for n in range(1, len(answer) + 1)]
            assert all(n > 1 for n in places[: unknown - 1])
            assert unknown > len(answer) or places[unknown - 1] == 1
        starts.append(len(whole) - len(answer))
        shown.append(unknown)
    assert 0.36 < (np.array(shown) > 0).mean() < 0.53  # 0.6, less those whose random digit is the first
    assert set(starts) == set(range(12))
    assert task.held_out().anywhere == 0


def test_answers_begin_anywhere_without_changing_the_strings() -> None:
    assert all(
        np.array_equal(a, b)
        for a, b in zip(Copying(anywhere=0.5).strings(20, 1), Copying().strings(20, 1), strict=True)
    )
    with pytest.raises(ConfigError, match=r"Copying.anywhere = 1.5 must be from 0 to 1"):
        Copying(anywhere=1.5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cue_occurs_once_and_the_answer_goes_on_from_there(reverse: bool) -> None:
    task = Copying(reverse=reverse, length=40, min_length=1, plain=0.5, chained=4, cues=0.7)
    episodes = task.episodes(400, 3)
    whole, cues, elsewhere, unfinished, strings = 0, 0, 0, 0, []
    for number, (begin, end) in enumerate(episodes.bounds()):
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        assert read[0] == ("next" if number % 4 else "begin")
        turns = "".join(symbol[0] if symbol in ("next", "go") else symbol for symbol in read[1:]).split("n")
        digits = turns.pop(0)
        if number % 4 == 0:
            strings = []
        strings.append(digits.partition("g")[0])
        if "g" in digits:
            assert (strings[-1][::-1] if reverse else strings[-1]) == digits.partition("g")[2]
            assert not turns
            whole += 1
            continue
        assert not any(labels[: len(digits) + 1])
        assert sum(len(turn.partition("g")[2]) for turn in turns) <= len(digits) + 40 + 16
        at = 1 + len(digits)
        for turn in turns:
            cue, written = turn.split("g")
            go = at + 1 + len(cue)
            assert not any(labels[at:go])
            asked = labels[go : (at := go + 1 + len(written))]
            assert not any(asked[: len(cue)]), "what repeats the cue is not asked for"
            assert asked[len(cue) : -1] == list(written[len(cue) :])
            text = written + ("" if asked[-1] == "end" else asked[-1])
            if reverse:
                text = text[::-1]
            assert text.endswith(cue) if reverse else text.startswith(cue)
            found = [string for string in strings if text in string]
            assert found
            ends = [string.startswith(text) if reverse else string.endswith(text) for string in found]
            assert asked[-1] != "end" or any(ends)
            places = sum(string.startswith(cue, i) for string in strings for i in range(len(string)))
            assert places == 1 or any(string.startswith(cue) for string in strings)
            cues += 1
            elsewhere += cue not in strings[-1]
            unfinished += asked[-1] != "end"
        assert at == len(read)
    assert 0.22 < whole / 400 < 0.38
    assert 0.2 < elsewhere / cues < 0.45  # a cue comes from each of up to three earlier strings half the time
    assert 0.1 < unfinished / cues < 0.9
    assert task.held_out().cues == 0


def test_cues_do_not_change_the_strings() -> None:
    assert all(
        np.array_equal(a, b) for a, b in zip(Copying(cues=1.0).strings(20, 1), Copying().strings(20, 1), strict=True)
    )
    with pytest.raises(ConfigError, match=r"Copying.cues = -1.0 must be from 0 to 1"):
        Copying(cues=-1.0)
