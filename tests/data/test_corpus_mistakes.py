"""What cannot be prepared or read is one sentence, and the command that says it."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from feedback_transformer.cli import main
from feedback_transformer.data import prepare as preparing
from feedback_transformer.data.corpora import KNOWN, DataError
from feedback_transformer.data.corpus import Corpus, write_tokens
from feedback_transformer.data.prepare import prepare
from tests.data.sources import long_text, text_of, write_three


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


def test_an_archive_that_cannot_be_unpacked_is_a_sentence(tmp_path: Path) -> None:
    """With a password, with a compression that Python does not know, with a name in another encoding."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", long_text())
    plain = (tmp_path / "a.zip").read_bytes()
    local, central = plain.index(b"PK\x03\x04"), plain.index(b"PK\x01\x02")
    for flag, kind in ((1, 0), (0, 99)):
        changed = bytearray(plain)
        for at in (local + 6, central + 8):
            changed[at : at + 4] = bytes([flag, 0, kind, 0])
        (tmp_path / "b.zip").write_bytes(bytes(changed))
        with pytest.raises(DataError, match=r"b\.zip is truncated or damaged"):
            prepare("text", tmp_path / "out", tmp_path / "b.zip")


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
        ("train.npy", short_array, "says 23 tokens"),
        ("test.npy", None, "there is no .*test.npy"),
        ("corpus.json", None, "holds no prepared corpus"),
        ("corpus.json", b"{", "corpus.json is damaged"),
        ("corpus.json", b"[]", "has format None"),
        (
            "corpus.json",
            json.dumps({**description, "format": 2}).encode(),
            "has format 2 but this version reads format 1",
        ),
        ("corpus.json", b'{"format": 1}', "corpus.json is damaged"),
        ("corpus.json", whole["corpus.json"].replace(b'"name"', b'"nom"'), "corpus.json is damaged"),
        ("corpus.json", whole["corpus.json"].replace(b'"sha256"', b'"sha"'), "corpus.json is damaged"),
        ("vocabulary.json", b'{"format": 1, "kind": "bytes"}', "256 tokens but corpus.json says"),
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
        (["mutli30k"], "no corpus 'mutli30k'; did you mean 'multi30k'?"),
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
