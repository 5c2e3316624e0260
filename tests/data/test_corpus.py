"""From files, folders and archives to tokens: small corpora made here."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feedback_transformer.data.corpora import KNOWN, SPLITS, Archive, DataError, Known, Member
from feedback_transformer.data.prepare import prepare
from tests.data.sources import THREE, archives, long_text, text_of, write_three

# --------------------------------------------------------------------------------------- where text comes from


@pytest.mark.parametrize("pattern", ["{}.txt", "wiki.{}.tokens", "ptb.char.{}.txt", "{}"])
def test_a_folder_with_splits_is_taken_as_it_is(tmp_path: Path, pattern: str) -> None:
    corpus = prepare("text", tmp_path / "out", write_three(tmp_path / "in", pattern))
    assert [corpus.vocabulary.decode(corpus.split(split)) for split in SPLITS] == list(THREE.values())
    assert corpus.train.dtype == np.uint8
    assert isinstance(corpus.train, np.memmap)


@pytest.mark.parametrize("tokens", ["characters", "bytes", "words", "bpe"])
def test_one_file_is_cut_in_three_and_nothing_is_lost(tmp_path: Path, tokens: str) -> None:
    if tokens == "bpe":
        pytest.importorskip("tokenizers")
    (tmp_path / "train.txt").write_text(long_text(), encoding="utf-8")
    size = 300 if tokens == "bpe" else None
    corpus = prepare("text", tmp_path / "out", tmp_path / "train.txt", tokens, size)
    sizes = [corpus.description["splits"][split]["bytes"] for split in SPLITS]
    assert sum(sizes) == (tmp_path / "train.txt").stat().st_size
    assert sizes[0] / sum(sizes) == pytest.approx(0.9, abs=0.01)
    if tokens == "words":
        assert sum(len(corpus.split(split)) for split in SPLITS) == len(long_text().replace("\n", " <eos> ").split())
        assert all(corpus.vocabulary.decode(corpus.split(split)).startswith("line") for split in SPLITS)
    elif tokens == "bytes":
        assert b"".join(corpus.split(split).tobytes() for split in SPLITS) == long_text().encode()
    else:
        assert text_of(corpus) == long_text()


@pytest.mark.parametrize("length", range(200, 212))
def test_a_cut_never_falls_into_a_character(tmp_path: Path, length: int) -> None:
    text = "€" * length
    (tmp_path / "euros.txt").write_text("x" * (length % 3) + text, encoding="utf-8")
    assert text_of(prepare("text", tmp_path / "out", tmp_path / "euros.txt")) == "x" * (length % 3) + text


def test_a_cut_that_falls_on_the_end_of_a_line_stays_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("123 567 9\n" * 100)
    corpus = prepare("text", tmp_path / "out", tmp_path / "a.txt", "words")
    assert [len(corpus.split(split)) for split in SPLITS] == [360, 20, 20]


def test_words_in_one_long_line_are_not_cut_in_two(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("wonderful " * 100)
    corpus = prepare("text", tmp_path / "out", tmp_path / "a.txt", "words", end_of_line=False)
    assert corpus.vocabulary.size == 2
    assert sum(len(corpus.split(split)) for split in SPLITS) == 100


def test_a_folder_of_many_files_is_joined_in_sorted_order(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    (folder / "more").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "more/c.txt"):
        (folder / name).write_text(f"{name}: " + "x" * 100)
    (folder / "picture.png").write_bytes(b"\xff\xfe")
    whole = text_of(prepare("text", tmp_path / "out", folder))
    lines = whole.split("\n")
    assert [line.partition(":")[0] for line in lines] == ["a.txt", "b.txt", "more/c.txt"]


def test_archives_give_the_same_tokens_as_folders(tmp_path: Path) -> None:
    files = {f"./deep/{split}.txt": text.encode() for split, text in THREE.items()} | {"README": b"hello"}
    for number, path in enumerate(archives(tmp_path, files)):
        corpus = prepare("text", tmp_path / f"out{number}", path)
        assert [corpus.vocabulary.decode(corpus.split(split)) for split in SPLITS] == list(THREE.values())


def test_a_compressed_file_is_unpacked(tmp_path: Path) -> None:
    for suffix, compress in ((".xz", lzma.compress), (".gz", gzip.compress)):
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(compress(long_text().encode()))
        assert text_of(prepare("text", tmp_path / f"out{suffix}", path)) == long_text()


@pytest.mark.parametrize(
    "name", ["/etc/train.txt", "../train.txt", "a/../../train.txt", "C:/train.txt", "..\\train.txt"]
)
def test_an_archive_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    for path in archives(tmp_path, {"good.txt": long_text().encode(), name: b"bad"}):
        with pytest.raises(DataError, match="points outside the archive"):
            prepare("text", tmp_path / "out", path)
    assert not (tmp_path / "out").exists()


def test_a_truncated_archive_is_a_sentence(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(100_000).hex().encode()
    (tmp_path / "a.xz").write_bytes(lzma.compress(noise))
    for path in [*archives(tmp_path, {"a.txt": noise}), tmp_path / "a.xz"]:
        path.write_bytes(path.read_bytes()[:50_000])
        with pytest.raises(DataError, match=r"is truncated or damaged .*; fetch it again"):
            prepare("text", tmp_path / "out", path)
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------------- known corpora


def known_by_hash(tmp_path: Path, spaced: bool = False) -> tuple[Known, Path]:
    """A corpus of three files with known hashes, as a zip."""
    files = {f"tiny/tiny.{split}.txt": text.encode() for split, text in THREE.items()}
    members = {
        split: Member(name, len(content), hashlib.sha256(content).hexdigest())
        for split, (name, content) in zip(SPLITS, files.items(), strict=True)
    }
    path = archives(tmp_path, files)[0]
    archive = Archive((path.as_uri(),), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    return Known("tiny", "a test", "none", "characters", archive, members, spaced=spaced), path


def test_a_known_corpus_is_checked_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, path = known_by_hash(tmp_path)
    monkeypatch.setitem(KNOWN, "tiny", known)
    corpus = prepare("tiny", tmp_path / "out", path)
    assert all(corpus.description["splits"][split]["checked"] for split in SPLITS)
    other = write_three(tmp_path / "in")
    (other / "valid.txt").write_text("the dxg\n")
    with pytest.raises(DataError, match=r"valid\.txt has sha256 .* is not the corpus tiny"):
        prepare("tiny", tmp_path / "other", other)
    (other / "valid.txt").write_text("shorter")
    with pytest.raises(DataError, match=r"valid\.txt has 7 bytes and tiny\.valid\.txt has 8"):
        prepare("tiny", tmp_path / "other", other)


def test_a_download_ends_as_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = known_by_hash(tmp_path)
    monkeypatch.setitem(KNOWN, "tiny", known)
    corpus = prepare("tiny", tmp_path / "data" / "tiny")
    assert text_of(corpus) == "".join(THREE.values())
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["downloads", "tiny"]


def test_an_archive_known_as_a_whole_vouches_for_files_without_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, path = known_by_hash(tmp_path)
    assert known.members is not None
    loose = replace(known, members={split: Member(member.name) for split, member in known.members.items()})
    monkeypatch.setitem(KNOWN, "tiny", loose)
    whole = prepare("tiny", tmp_path / "whole", path)
    files = prepare("tiny", tmp_path / "files", write_three(tmp_path / "in"))
    assert whole.description["splits"]["train"]["checked"] is True
    assert files.description["splits"]["train"]["checked"] is False


def test_spaced_characters_become_text_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"tiny.{split}.txt").write_text(" n o _ w a y \n < u n k > _ N \n")
    members = {split: Member(f"tiny.{split}.txt") for split in SPLITS}
    monkeypatch.setitem(KNOWN, "tiny", Known("tiny", "", "", "characters", None, members, spaced=True))
    corpus = prepare("tiny", tmp_path / "out", folder)
    assert corpus.vocabulary.decode(corpus.train) == "no way\n<unk> N\n"
    assert corpus.description["splits"]["train"]["bytes"] == 15


def test_a_whole_file_is_cut_by_its_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.random.default_rng(0).bytes(1000)
    (tmp_path / "noise").write_bytes(content)
    whole = Member("noise", 1000, hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(KNOWN, "noise", Known("noise", "", "", "bytes", whole=whole))
    corpus = prepare("noise", tmp_path / "out", tmp_path)
    assert [len(corpus.split(split)) for split in SPLITS] == [900, 50, 50]
    assert corpus.valid.tobytes() == content[900:950]


@pytest.mark.parametrize("tokens", ["characters", "bytes", "words"])
def test_memory_does_not_grow_with_the_text(tmp_path: Path, tokens: str) -> None:
    peaks = []
    for megabytes in (10, 30):
        (tmp_path / "a.txt").write_bytes((b"long-winded" * 9 + b"\n") * (megabytes * 10_000))
        tracemalloc.start()
        prepare("text", tmp_path / f"out{megabytes}", tmp_path / "a.txt", tokens)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
