"""From files, folders and archives to tokens: the same code on small corpora made here, and on real ones if present."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feedback_transformer.cli import main
from feedback_transformer.data import prepare as preparing
from feedback_transformer.data.corpora import KNOWN, SPLITS, Archive, DataError, Known, Member
from feedback_transformer.data.corpus import Corpus, write_tokens
from feedback_transformer.data.prepare import prepare

THREE = {"train": "the cat sat\non the mat\n", "valid": "the dog\n", "test": "a mat"}


def write_three(folder: Path, pattern: str = "{}.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in THREE.items():
        (folder / pattern.format(split)).write_text(text)
    return folder


def long_text(lines: int = 400) -> str:
    return "".join(f"line {n} — äöü\n" for n in range(lines))


def text_of(corpus: Corpus) -> str:
    return "".join(corpus.vocabulary.decode(corpus.split(split)) for split in SPLITS)


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


def archives(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """The same files as .zip, .tar.gz, .tgz and .tar.xz."""
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    made = [folder / "a.zip"]
    for suffix, mode in ((".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz")):
        with tarfile.open(folder / f"a{suffix}", mode) as tar:  # type: ignore[call-overload]
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        made.append(folder / f"a{suffix}")
    return made


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


# ----------------------------------------------------------------------------------------- mistakes, sentences


def test_wrong_encoding_tells_the_byte_and_its_position(tmp_path: Path) -> None:
    bad = "x" * 5_000_000 + "é" * 10
    (tmp_path / "latin.txt").write_bytes(bad.encode("latin-1") + b" " * 5_000_000)
    with pytest.raises(DataError, match=r"latin\.txt is not UTF-8: byte 0xe9 at position 5,000,000; .*--tokens bytes"):
        prepare("text", tmp_path / "out", tmp_path / "latin.txt")
    assert not (tmp_path / "out").exists()
    assert len(prepare("text", tmp_path / "out", tmp_path / "latin.txt", "bytes").train) == 9_000_009


def test_half_a_character_at_the_end_is_wrong_encoding(tmp_path: Path) -> None:
    (tmp_path / "cut.txt").write_bytes(long_text().encode() + "é".encode()[:1])
    with pytest.raises(DataError, match="not UTF-8: byte 0xc3"):
        prepare("text", tmp_path / "out", tmp_path / "cut.txt")


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "bom.txt").write_text(long_text(), encoding="utf-8-sig")
    assert text_of(prepare("text", tmp_path / "out", tmp_path / "bom.txt")) == long_text()


def test_empty_missing_and_short_sources_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("hi")
    (tmp_path / "nothing").mkdir()
    half = write_three(tmp_path / "half")
    (half / "valid.txt").unlink()
    double = write_three(tmp_path / "double")
    (double / "b.train.txt").write_text("more")
    hollow = write_three(tmp_path / "hollow")
    (hollow / "test.txt").write_text("")
    for source, sentence in [
        ("empty.txt", "empty.txt is empty"),
        ("short.txt", "2 bytes, too few"),
        ("nothing", "holds no text"),
        ("nowhere", "there is no file or folder"),
        ("half", "no valid split"),
        ("double", "two files for train"),
        ("hollow", "test.txt is empty"),
    ]:
        with pytest.raises(DataError, match=sentence):
            prepare("text", tmp_path / "out", tmp_path / source)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_known_corpus_says_which_files_it_needs(tmp_path: Path) -> None:
    (tmp_path / "wiki.valid.tokens").write_text("a")
    with pytest.raises(DataError, match=r"no train split; wikitext-103 needs wiki\.train\.tokens"):
        prepare("wikitext-103", tmp_path / "out", tmp_path)
    with pytest.raises(DataError, match="is one file, and wikitext-2 needs three"):
        prepare("wikitext-2", tmp_path / "out", tmp_path / "wiki.valid.tokens")
    (tmp_path / "enwik8").write_text("a")
    with pytest.raises(DataError, match="has 1 bytes and enwik8 has 100,000,000"):
        prepare("enwik8", tmp_path / "out", tmp_path / "enwik8")


def test_options_that_cannot_be_are_sentences(tmp_path: Path) -> None:
    folder = write_three(tmp_path / "in")
    for options, sentence in [
        ({"tokens": "word"}, "did you mean 'words'"),
        ({"tokens": "characters", "vocab_size": 9}, "--vocab-size is for words and bpe"),
        ({"tokens": "words", "vocab_size": 1}, "too small for words; take 3 or more"),
        ({"tokens": "bytes", "end_of_line": False}, "--no-end-of-line is for words and characters"),
    ]:
        with pytest.raises(DataError, match=sentence):
            prepare("text", tmp_path / "out", folder, **options)  # type: ignore[arg-type]


def test_a_folder_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    source, out = write_three(tmp_path / "in"), tmp_path / "out"
    prepare("text", out, source)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(DataError, match="holds a corpus with tokens = characters, not words"):
        prepare("text", out, source, "words")
    (source / "train.txt").write_text("other")
    with pytest.raises(DataError, match="made from another train text"):
        prepare("text", out, source)
    with pytest.raises(DataError, match="holds no prepared corpus; choose another --out"):
        prepare("text", source, source)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_interrupted_preparation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    source = write_three(tmp_path / "in")
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "write_last", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare("text", tmp_path / "data" / "out", source)
    assert not list((tmp_path / "data").iterdir())
    (tmp_path / "data" / "out").mkdir()
    prepare("text", tmp_path / "data" / "out", source)


def test_a_damaged_corpus_is_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("text", out, write_three(tmp_path / "in"))
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    description = json.loads(whole["corpus.json"])
    shorter = np.zeros(3, np.uint8)
    with io.BytesIO() as file:
        np.save(file, shorter)
        short_array = file.getvalue()
    for name, content, sentence in [
        ("train.npy", whole["train.npy"][:-1], "train.npy is truncated or damaged"),
        ("train.npy", whole["train.npy"][:50], "train.npy is truncated or damaged"),
        ("train.npy", short_array, "tells of 23 tokens"),
        ("test.npy", None, "there is no .*test.npy"),
        ("corpus.json", None, "holds no prepared corpus"),
        ("corpus.json", b"{", "corpus.json is damaged"),
        ("corpus.json", b"[]", "has format None"),
        (
            "corpus.json",
            json.dumps({**description, "format": 2}).encode(),
            "has format 2 and this version reads format 1",
        ),
        ("corpus.json", b'{"format": 1}', "corpus.json is damaged"),
        ("vocabulary.json", b'{"format": 1, "kind": "bytes"}', "256 tokens and corpus.json tells of"),
    ]:
        for file_name, original in whole.items():
            (out / file_name).write_bytes(original)
        if content is None:
            (out / name).unlink()
        else:
            (out / name).write_bytes(content)
        with pytest.raises(DataError, match=sentence):
            Corpus.open(out)


def test_an_unknown_split_is_a_sentence(tmp_path: Path) -> None:
    corpus = prepare("text", tmp_path / "out", write_three(tmp_path / "in"))
    with pytest.raises(DataError, match="choose one of train, valid, test"):
        corpus.split("dev")


def test_arrays_of_unknown_length_are_written_as_numpy_writes_them(tmp_path: Path) -> None:
    for count in (0, 1, 12_345):
        array = np.arange(count).astype(np.uint16)
        parts = np.array_split(array, 7)
        assert write_tokens(tmp_path / "a.npy", parts, np.dtype(np.uint16)) == count
        np.save(tmp_path / "b.npy", array)
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


# --------------------------------------------------------------------------------------------- the command


def test_the_command_tells_counts_and_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_three(tmp_path / "novel")
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "text", "--from", "novel", "--tokens", "words"]) == 0
    said = capsys.readouterr().out
    assert "text: 8 / 3 / 3 words" in said
    assert "data/novel-words" in said
    assert main(["prepare", "text", "--from", "novel", "--tokens", "words"]) == 0
    assert "data/novel-words is there already" in capsys.readouterr().out
    assert main(["prepare", "text", "--from", "novel", "--tokens", "words", "--no-end-of-line"]) == 2
    assert "end_of_line = True, not False" in capsys.readouterr().err


def test_the_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["prepare", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in KNOWN)
    assert "feedback-transformer prepare text --from novels/" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ptb-chr"], "no corpus 'ptb-chr'; did you mean 'ptb-char'?"),
        (["text"], "say where it is with --from PATH"),
        (["text", "--from", "nowhere"], "there is no file or folder nowhere"),
        (["text", "--from", "file/in/a/file", "--out", "x"], "there is no file or folder"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot read or write"):
        prepare("text", tmp_path / "file" / "out", write_three(tmp_path / "in"))


# -------------------------------------------------------------------------------- the real corpora, if present


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
