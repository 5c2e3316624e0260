"""Copy and reverse: what is asked for, where, and what differs in training."""

from __future__ import annotations

from dataclasses import replace

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
def test_a_part_is_asked_for_after_a_cue_that_occurs_once(reverse: bool) -> None:
    task = Copying(reverse=reverse, length=40, min_length=20, plain=0.5, chained=4, cues=0.7)
    episodes = task.episodes(400, 3)
    whole, parts, elsewhere, unfinished, strings = 0, 0, 0, 0, []
    for number, (begin, end) in enumerate(episodes.bounds()):
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        assert read[0] == ("next" if number % 4 else "begin")
        digits, *turns = "".join("g" if symbol == "go" else symbol for symbol in read[1:]).split("g")
        strings = [*(strings if number % 4 else []), digits]
        at = 1 + len(digits)
        assert not any(labels[:at])
        if turns == [digits[::-1] if reverse else digits] and all(labels[at + 1 :]):
            whole += 1
            continue
        assert sum(map(len, turns)) <= len(digits) + 40 + 16
        for written in turns:
            asked = labels[at : (at := at + 1 + len(written))]
            cue = next(n for n, label in enumerate(asked) if label)
            assert asked[cue:-1] == list(written[cue:])
            text = written + ("" if asked[-1] == "end" else asked[-1])
            text, shown = (text[::-1], written[:cue][::-1]) if reverse else (text, written[:cue])
            found = [string for string in strings if text in string]
            assert found
            ends = [string.startswith(text) if reverse else string.endswith(text) for string in found]
            assert asked[-1] != "end" or any(ends)
            assert cue > 0, "nothing else says where the part begins"
            places = sum(string.startswith(shown, i) for string in strings for i in range(len(string)))
            assert places == 1 or any(string.startswith(shown) for string in strings)
            parts += 1
            elsewhere += shown not in strings[-1]
            unfinished += asked[-1] != "end"
        assert at == len(read)
    assert 0.22 < whole / 400 < 0.38
    assert 0.2 < elsewhere / parts < 0.45  # half of the parts are of any of up to four strings
    assert 0.1 < unfinished / parts < 0.9
    assert task.held_out().cues == 0


def test_only_digits_of_answers_are_misread_and_what_is_asked_for_stays_right() -> None:
    task = Copying(reverse=True, length=20, min_length=10, cues=0.5)
    wrong = of = 0
    for seed in range(200):
        right, read = task.episodes(1, seed), replace(task, misread=0.2).episodes(1, seed)
        assert np.array_equal(read.labels, right.labels)
        go = words(task, right.tokens).index("go")
        assert np.array_equal(read.tokens[: go + 1], right.tokens[: go + 1])
        digits = right.tokens[go:] < 10
        assert np.array_equal(read.tokens[go:][~digits], right.tokens[go:][~digits])
        wrong, of = wrong + int((read.tokens != right.tokens).sum()), of + int(digits.sum())
    assert 0.16 < wrong / of < 0.2  # one in ten of the random digits is the right one
    assert replace(task, misread=0.2).held_out().misread == 0
    with pytest.raises(ConfigError, match=r"Copying.misread = 2.0 must be from 0 to 1"):
        Copying(misread=2.0)


def test_a_cue_that_is_read_again_stands_forwards_before_its_part() -> None:
    task = Copying(reverse=True, length=20, min_length=10, cues=1.0)
    for seed in range(50):
        plain, again = (replace(task, reread=reread).episodes(1, seed) for reread in (False, True))
        assert list(again.labels[again.labels >= 0]) == list(plain.labels[plain.labels >= 0]), "it asks for the same"
        string, *parts = " ".join(words(task, plain.tokens)).split(" go ")
        first, *others = " ".join(words(task, again.tokens)).split(" next ")
        assert first == string
        for part, other in zip(parts, others, strict=True):
            cue, written = other.split(" go ")
            assert written == part
            assert written.startswith(cue[::-1]), "the cue is what is written and not asked for"
    assert not replace(task, reread=True).held_out().reread


def test_some_strings_of_a_chain_are_asked_for_later_and_the_last_always() -> None:
    task = Copying(reverse=True, length=20, min_length=10, chained=4, cues=1.0, later=0.5)
    episodes, unasked, late, strings = task.episodes(400, 5), 0, 0, []
    for number, (begin, end) in enumerate(episodes.bounds()):
        read, labels = words(task, episodes.tokens[begin:end]), answers(task, episodes.labels[begin:end])
        asked = "go" in read
        digits = "".join(read[1 : read.index("go") if asked else None])
        strings = [*(strings if number % 4 else []), digits]
        unasked = len(digits) + (unasked if number % 4 else 0)
        assert asked or number % 4 < 3, "nothing of the chain is asked for after its last string"
        assert any(labels) == asked
        if asked:  # for as much as was read since, in parts of at most 10 digits of cue and 16 more
            written = len(read) - read.index("go")
            assert unasked <= written <= unasked + 40
            unasked = 0
        late += not asked
    assert 0.3 < late / 400 < 0.45  # half of three in four
    assert task.held_out().later == 0
    assert Copying(later=1.0).episodes(5, 0).labels.max() >= 0, "without chains there is no later"


def test_cues_do_not_change_the_strings() -> None:
    assert all(
        np.array_equal(a, b) for a, b in zip(Copying(cues=1.0).strings(20, 1), Copying().strings(20, 1), strict=True)
    )
    with pytest.raises(ConfigError, match=r"Copying.cues = -1.0 must be from 0 to 1"):
        Copying(cues=-1.0)
