"""The real corpora, where they are present, have their published counts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from feedback_transformer.data.corpora import KNOWN, SPLITS
from feedback_transformer.data.prepare import prepare


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
