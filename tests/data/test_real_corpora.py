"""The real corpora, where they are present, have their published counts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from feedback_transformer.data.corpora import KNOWN, SPLITS
from feedback_transformer.data.pairs import Pairs
from feedback_transformer.data.prepare import prepare
from feedback_transformer.data.prepare_pairs import prepare_pairs


def real(name: str) -> Path:
    """An archive of a real corpus, in the folder FEEDBACK_TRANSFORMER_CORPORA or beside the repository."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("FEEDBACK_TRANSFORMER_CORPORA", beside)) / name
    if not path.exists():
        pytest.skip(f"no {name} here; set FEEDBACK_TRANSFORMER_CORPORA to its folder")
    return path


def test_the_penn_treebank_has_its_published_characters(tmp_path: Path) -> None:
    corpus = prepare("ptb-char", tmp_path / "ptb", real("ptb.tar.xz"))
    assert [len(corpus.split(split)) for split in SPLITS] == [5_017_482, 393_042, 442_423]
    assert corpus.vocabulary.size == 50
    assert corpus.vocabulary.decode(corpus.valid[:30]) == "consumers may want to move the"
    assert all(corpus.description["splits"][split]["checked"] for split in SPLITS)


def test_wikitext_2_has_its_published_words(tmp_path: Path) -> None:
    corpus = prepare("wikitext-2", tmp_path / "wikitext", real("wikitext2.tar.xz"))
    assert [len(corpus.split(split)) for split in SPLITS] == [2_088_628, 217_646, 245_569]
    assert corpus.vocabulary.size == 33_278
    assert corpus.train.dtype == np.uint16
    assert corpus.vocabulary.decode(corpus.test[:4]) == "\n= Robert <unk>"


@pytest.mark.slow
def test_enwik8_is_every_byte_of_its_file(tmp_path: Path) -> None:
    corpus = prepare("enwik8", tmp_path / "enwik8", real("enwik8.xz"))
    assert [len(corpus.split(split)) for split in SPLITS] == [90_000_000, 5_000_000, 5_000_000]
    digest = hashlib.sha256()
    for split in SPLITS:
        digest.update(corpus.split(split).data)
    assert KNOWN["enwik8"].whole is not None
    assert digest.hexdigest() == KNOWN["enwik8"].whole.sha256


def sizes(pairs: Pairs) -> list[int]:
    return [len(pairs.split(split)) for split in SPLITS]


def checked(pairs: Pairs) -> list[bool]:
    return [pairs.description["splits"][split]["checked"] for split in SPLITS]


@pytest.mark.slow
def test_multi30k_is_the_published_one(tmp_path: Path) -> None:
    pairs = prepare_pairs("multi30k", tmp_path / "multi30k", [real("multi30k.tar.xz")], vocab_size=1000)
    assert sizes(pairs) == [29_000, 1_014, 1_000]
    assert checked(pairs) == [True, True, True]
    assert pairs.test.texts[0] == (
        "A man in an orange hat starring at something.",
        "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    )
    swapped = prepare_pairs("multi30k", tmp_path / "swap", [real("multi30k.tar.xz")], vocab_size=1000, swap=True)
    assert checked(swapped) == [True, True, True], "whichever way round"


@pytest.mark.slow
def test_iwslt14_is_scored_on_the_standard_sets(tmp_path: Path) -> None:
    place = [real("iwslt14_deen.tar.xz")]
    pairs = prepare_pairs("iwslt14-deen", tmp_path / "iwslt", place, vocab_size=1000, skip="<S_[0-9]+>")
    assert sizes(pairs)[1:] == [7_283, 6_750]
    assert checked(pairs) == [False, True, True]
    assert pairs.description["splits"]["train"]["skipped"] == 9_865


@pytest.mark.slow
def test_wmt14_is_scored_on_newstest_and_never_trained_on_it(tmp_path: Path) -> None:
    pairs = prepare_pairs("wmt14-ende", tmp_path / "wmt", [real("wmt_ende.tar.xz")], vocab_size=1000)
    assert sizes(pairs) == [200_000, 3_000, 3_003]
    assert checked(pairs) == [False, True, True]


@pytest.mark.slow
def test_articles_of_cnn_and_the_daily_mail_are_cut(tmp_path: Path) -> None:
    place = [real("cnn_dm_a400.tar.xz")]
    pairs = prepare_pairs("cnn-dailymail", tmp_path / "cnn", place, vocab_size=1000, source_words=20)
    assert [pairs.description["splits"][split]["read"] for split in SPLITS] == [39_160, 4_368, 4_490]
    assert sizes(pairs) == [39_159, 4_368, 4_490], "one summary is too long in so few symbols"
    assert max(len(source.split()) for source, _ in pairs.test.texts) == 20
    assert "\n" in pairs.test.texts[0][1], "the sentences of a summary stay apart"
