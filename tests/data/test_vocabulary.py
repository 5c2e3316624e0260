"""Vocabularies: what is encoded comes back, and streams may be cut anywhere."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.vocabulary import (
    BPE,
    Bytes,
    Characters,
    Vocabulary,
    Words,
    load_vocabulary,
)

TEXT = "the cat sat on the mat\nthe dog ate — naïve 漢字\n\n  two  spaces\n"


def every_vocabulary() -> list[Vocabulary]:
    found: list[Vocabulary] = [Bytes(), Characters.from_texts([TEXT]), Words.from_texts([TEXT])]
    if importlib.util.find_spec("tokenizers"):
        found.append(BPE.from_texts([TEXT], 280))
    return found


EVERY = every_vocabulary()


@pytest.mark.parametrize("vocabulary", EVERY, ids=lambda vocabulary: vocabulary.kind)
def test_decoding_gives_the_text_back(vocabulary: Vocabulary) -> None:
    expected = (
        TEXT if vocabulary.kind != "words" else "the cat sat on the mat\nthe dog ate — naïve 漢字\n\ntwo spaces\n"
    )
    assert vocabulary.decode(vocabulary.encode(TEXT)) == expected


@pytest.mark.parametrize("vocabulary", EVERY, ids=lambda vocabulary: vocabulary.kind)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=6))
def test_a_stream_cut_anywhere_gives_the_same_tokens(vocabulary: Vocabulary, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(TEXT)]
    parts = [TEXT[a:b] for a, b in itertools.pairwise(bounds)]
    tokens = np.concatenate(list(vocabulary.encode_stream(parts)))
    assert tokens.tolist() == vocabulary.encode(TEXT).tolist()


@pytest.mark.parametrize("vocabulary", EVERY, ids=lambda vocabulary: vocabulary.kind)
def test_half_a_character_is_a_sentence_and_a_byte_is_kept_as_it_was(vocabulary: Vocabulary) -> None:
    """Python reads a byte of a command line that is not UTF-8 as half a character."""
    if vocabulary.kind == "words":
        assert vocabulary.decode(vocabulary.encode("\udcff")) == "<unk>"
        return
    if vocabulary.kind == "bytes":
        assert vocabulary.encode("a\udcff").tolist() == [97, 255]
    with pytest.raises(DataError, match="half a character at position 1"):
        vocabulary.encode("a\ud800")


@pytest.mark.parametrize("vocabulary", EVERY, ids=lambda vocabulary: vocabulary.kind)
def test_a_saved_vocabulary_is_the_same_one(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path)
    loaded = load_vocabulary(tmp_path, vocabulary.kind)
    assert loaded.size == vocabulary.size
    assert loaded.encode(TEXT).tolist() == vocabulary.encode(TEXT).tolist()


@pytest.mark.parametrize("vocabulary", EVERY, ids=lambda vocabulary: vocabulary.kind)
def test_tokens_beyond_the_vocabulary_are_refused(vocabulary: Vocabulary) -> None:
    assert vocabulary.encode("").tolist() == []
    assert vocabulary.decode([]) == ""
    for token in (-1, vocabulary.size):
        with pytest.raises(DataError, match=f"not all in a vocabulary of {vocabulary.size}"):
            vocabulary.decode([0, token])


def test_numbers_take_the_smallest_type_that_fits() -> None:
    def words(count: int) -> Words:
        return Words([str(n) for n in range(count - 1)] + ["<unk>"])

    assert [words(n).dtype for n in (256, 257, 65_536, 65_537)] == [np.uint8, np.uint16, np.uint16, np.uint32]
    characters = Characters("".join(map(chr, range(256))))
    assert characters.encode("aÿ").dtype == np.uint8


def test_a_strange_character_is_named() -> None:
    with pytest.raises(DataError, match=r"the character 'é' \(U\+00E9\) is not among the 3 .*--tokens bytes"):
        Characters("abc").encode("abcé")


def test_without_ends_of_line_a_newline_is_a_space() -> None:
    letters = Characters.from_texts(["ab\ncd"], end_of_line=False)
    assert letters.symbols == " abcd"
    assert letters.decode(letters.encode("ab\ncd")) == "ab cd"


def test_words_of_equal_count_are_in_the_order_of_the_alphabet() -> None:
    assert Words.from_texts(["b a c b\n"]).words == ["b", "<eos>", "a", "c", "<unk>"]
    assert Words.from_texts(["c a b ", "b\n"]).words == Words.from_texts(["b a b c\n"]).words


def test_the_end_of_a_line_is_a_token_or_nothing() -> None:
    with_ends, without = Words.from_texts(["a b\nc\n"]), Words.from_texts(["a b\nc\n"], end_of_line=False)
    assert with_ends.decode(with_ends.encode("a b\nc")) == "a b\nc"
    assert "<eos>" not in without.words
    assert without.decode(without.encode("a b\nc")) == "a b c"
    assert with_ends.decode(with_ends.encode("\n\n\na\n\n\nb\n")) == "\n\n\na\n\n\nb\n"


def test_a_limit_keeps_the_frequent_words_and_counts_the_rest_as_unknown() -> None:
    words = Words.from_texts(["a a a a b b c d e f\n"], limit=4)
    assert words.words == ["<unk>", "a", "b", "<eos>"]
    assert words.encode("a f zebra\n").tolist() == [1, 0, 0, 3]


def test_a_word_not_met_in_training_is_unknown() -> None:
    words = Words.from_texts(["a <unk> <unk>\n"])
    assert words.words == ["<unk>", "<eos>", "a"]
    assert words.decode(words.encode("zebra a")) == "<unk> a"


def test_bpe_learns_what_is_frequent() -> None:
    pytest.importorskip("tokenizers")
    text = "banana bandana banana\n" * 50
    few, many = BPE.from_texts([text], 256), BPE.from_texts([text], 262)
    assert (few.size, many.size) == (256, 262)
    assert len(many.encode(text)) < len(few.encode(text)) / 2
    assert BPE.from_texts([text[:100], text[100:]], 262).encode(text).tolist() == many.encode(text).tolist()
    assert many.decode(many.encode("anything: 漢字")) == "anything: 漢字"


def test_very_long_lines_are_encoded_alike_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.setattr("feedback_transformer.data.vocabulary.LONGEST_LINE", 10)
    text = "abc abc abcabc abc" * 5 + "\nabc" * 3
    bpe = BPE.from_texts([text], 262)
    parts = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert np.concatenate(list(bpe.encode_stream(parts))).tolist() == bpe.encode(text).tolist()
    assert bpe.decode(bpe.encode(text)) == text


def test_bpe_without_its_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match="pip install tokenizers"):
        BPE.from_texts([TEXT], 300)


def test_a_damaged_vocabulary_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*vocabulary\.json; prepare the corpus again"):
        load_vocabulary(tmp_path, "words")
    for content, sentence in [("{", "damaged"), ('{"format": 9}', "format 9"), ('{"format": 1}', "damaged")]:
        (tmp_path / "vocabulary.json").write_text(content)
        with pytest.raises(DataError, match=sentence):
            load_vocabulary(tmp_path, "words")
