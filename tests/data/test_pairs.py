"""Pairs: what is prepared, what is counted and refused, and batches in which every pair comes once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback_transformer.cli import main
from feedback_transformer.config import ConfigError
from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.pairs import BEGIN, END, PAD, ROWS, Pairs, PairSplit, Side, batches_by_length
from feedback_transformer.data.prepare_pairs import prepare_pairs
from feedback_transformer.model.language_model import NO_LABEL

WORDS = ["ein", "Mann", "läuft", "schnell", "über", "die", "Straße", "熊"]


def write_pairs(folder: Path, count: int = 60, name: str = "train") -> tuple[Path, Path]:
    """Sentences of one to eight words, and the same backwards in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / f"{name}.de", folder / f"{name}.en"
    sentences = [[WORDS[(i * 7 + j) % 8] for j in range(1 + i % 8)] for i in range(count)]
    source.write_text("".join(" ".join(words) + " .\n" for words in sentences), encoding="utf-8")
    target.write_text("".join(" ".join(words[::-1]).upper() + " .\n" for words in sentences), encoding="utf-8")
    return source, target


def prepared(folder: Path, **options: object) -> Pairs:
    return prepare_pairs("pairs", folder / "data", write_pairs(folder), vocab_size=300, **options)  # type: ignore[arg-type]


def test_every_pair_is_there_in_order_and_its_text_comes_back(tmp_path: Path) -> None:
    pairs = prepared(tmp_path)
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in write_pairs(tmp_path))
    assert [len(pairs.split(name)) for name in ("train", "valid", "test")] == [54, 3, 3]
    for at, split in ((0, pairs.train), (54, pairs.valid), (57, pairs.test)):
        for i in range(len(split)):
            assert pairs.vocabulary.decode(split.source[i]) == sources[at + i]
            assert pairs.vocabulary.decode(split.target[i]) == targets[at + i]
            assert split.source[i][-1] == END
    assert pairs.test.texts == tuple(zip(sources[57:], targets[57:], strict=True))


def test_no_text_spells_a_special_symbol_and_sentences_stay_apart(tmp_path: Path) -> None:
    vocabulary = prepared(tmp_path).vocabulary
    for text in ("<pad> <s> </s> \x00 [END]", "one .\ntwo .", "  "):
        tokens = vocabulary.encode_lines([text])[0]
        assert not set(tokens[:-1].tolist()) & {PAD, BEGIN, END}
        assert vocabulary.decode(tokens) == text.strip(" ")
    assert vocabulary.encode("ein Mann").tolist() == vocabulary.encode_lines(["ein Mann"])[0][:-1].tolist()


def test_files_that_are_not_aligned_are_refused(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    target.write_text("\n".join(target.read_text(encoding="utf-8").split("\n")[1:]), encoding="utf-8")
    with pytest.raises(DataError, match=r"train\.de has 60 lines and .*train\.en has 59: they are not aligned"):
        prepare_pairs("pairs", tmp_path / "data", (source, target))
    assert not (tmp_path / "data").exists()


def test_what_is_left_out_is_counted_by_reason_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_pairs(tmp_path)
    lines = source.read_text(encoding="utf-8").split("\n")
    lines[3], lines[10], lines[59] = "", "lang " * 300, ""
    source.write_text("\n".join(lines), encoding="utf-8")
    command = ["prepare", "pairs", "--from", str(source), str(target), "--out", str(tmp_path / "data")]
    assert main([*command, "--vocab-size", "300", "--max-length", "200"]) == 0
    said = capsys.readouterr().out
    assert "train: of 54 pairs 1 with an empty side, 1 longer than --max-length" in said
    assert "test: of 3 pairs 1 with an empty side; all kept, to be scored" in said
    pairs = Pairs.open(tmp_path / "data")
    assert [len(pairs.split(name)) for name in ("train", "valid", "test")] == [52, 3, 3]
    assert pairs.vocabulary.decode(pairs.train.source[3]) == lines[4], "pairs behind a gap still belong together"
    assert pairs.vocabulary.decode(pairs.train.target[3]) == target.read_text(encoding="utf-8").split("\n")[4]
    assert pairs.test.texts[2][0] == ""
    assert main([*command, "--vocab-size", "300", "--max-length", "200"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert main([*command, "--vocab-size", "300", "--max-length", "100"]) == 2
    assert "holds pairs with max_length = 200, not 100" in capsys.readouterr().err


def test_pairs_of_which_others_are_left_are_another_text(tmp_path: Path) -> None:
    files = write_pairs(tmp_path)
    folders = ((tmp_path / name, length) for name, length in (("one", 200), ("two", 200), ("short", 5)))
    prints = [prepare_pairs("pairs", f, files, vocab_size=300, max_length=n).fingerprints() for f, n in folders]
    assert prints[0] == prints[1]
    assert prints[0]["text"] != prints[2]["text"]
    assert prints[0]["vocabulary"] == prints[2]["vocabulary"]


def test_a_line_ends_only_at_a_newline(tmp_path: Path) -> None:
    """Corpora have other line ends inside their lines, which would shift every pair behind them."""
    source, target = write_pairs(tmp_path)
    target.write_text(target.read_text(encoding="utf-8").replace("MANN", "MA\x85NN\u2028X\r"), encoding="utf-8")
    pairs = prepare_pairs("pairs", tmp_path / "data", (source, target), vocab_size=300)
    assert len(pairs.train) == 54


def test_known_corpora_are_found_by_their_files(tmp_path: Path) -> None:
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        write_pairs(tmp_path / "multi", name=name)
    pairs = prepare_pairs("multi30k", tmp_path / "data", [tmp_path / "multi"], vocab_size=300)
    assert pairs.description["languages"] == ["en", "de"]
    assert pairs.vocabulary.decode(pairs.train.source[0]) == "EIN ."
    assert pairs.vocabulary.decode(pairs.train.target[0]) == "ein ."
    swapped = prepare_pairs("multi30k", tmp_path / "other", [tmp_path / "multi"], vocab_size=300, swap=True)
    assert swapped.vocabulary.decode(swapped.train.source[0]) == "ein ."
    (tmp_path / "multi" / "val.en").unlink()
    with pytest.raises(DataError, match=r"val\.de for valid; each file needs its other side"):
        prepare_pairs("multi30k", tmp_path / "third", [tmp_path / "multi"])


def test_articles_are_cut_and_summaries_keep_their_sentences(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for name in ("train", "val", "test"):
        entries = [{"article": "word " * n, "summary": [f"first {n} .", "second ."]} for n in range(1, 12)]
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        (files / f"{name}.a400.jsonl").write_text(text, encoding="utf-8")
    pairs = prepare_pairs("cnn-dailymail", tmp_path / "data", [files], vocab_size=300, source_words=5)
    assert pairs.description["splits"]["test"]["cut"] == 6
    assert pairs.test.texts[10] == ("word word word word word", "first 11 .\nsecond .")
    assert pairs.vocabulary.decode(pairs.test.target[10]) == "first 11 .\nsecond ."
    (files / "val.a400.jsonl").write_text('{"article": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="line 1 is not a JSON object with `article` and `summary`"):
        prepare_pairs("cnn-dailymail", tmp_path / "other", [files])
    (files / "val.a400.jsonl").write_bytes(b'{"article": "\xff"}\n')
    with pytest.raises(DataError, match="is not UTF-8"):
        prepare_pairs("cnn-dailymail", tmp_path / "other", [files])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["iwslt14-deen"], "say where iwslt14-deen is with --from"),
        (["pairs", "--from", "a"], "--from needs two files"),
        (["pairs", "--from", "a", "b"], "there is no file a"),
        (["multi30k", "--from", "nowhere"], "there is no file or folder nowhere"),
        (["multi30k", "--from", ".", "--valid", "a", "b"], "multi30k has its own splits"),
        (["pairs", "--from", "a", "b", "--vocab-size", "9"], "--vocab-size 9 is too small"),
        (["pairs", "--tokens", "words"], "pairs are always joint BPE"),
        (["text", "--from", "a", "--swap"], "--swap is for pairs"),
        (["text", "--from", "a", "b"], "--from takes one file"),
    ],
)
def test_a_mistake_is_a_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_files_of_ones_own_may_be_compressed(tmp_path: Path) -> None:
    plain = prepared(tmp_path)
    packed = [path.with_name(f"{path.name}.gz") for path in write_pairs(tmp_path)]
    for path in packed:
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    assert prepare_pairs("pairs", tmp_path / "other", packed, vocab_size=300).fingerprints() == plain.fingerprints()
    packed[0].write_bytes(packed[0].read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train.de.gz is truncated or damaged"):
        prepare_pairs("pairs", tmp_path / "third", packed, vocab_size=300)


def test_a_damaged_folder_is_a_sentence(tmp_path: Path) -> None:
    pairs = prepared(tmp_path)
    description = (pairs.folder / "pairs.json").read_text(encoding="utf-8")
    (pairs.folder / "pairs.json").write_text(description.replace("sha256", "sha"), encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs\.json is damaged"):
        Pairs.open(pairs.folder)
    (pairs.folder / "pairs.json").write_text(description, encoding="utf-8")
    (pairs.folder / "valid.jsonl").write_text("[]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"valid\.jsonl is missing or damaged"):
        Pairs.open(pairs.folder)
    (pairs.folder / "valid.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"and 0 texts for valid, but .* prepare them again"):
        Pairs.open(pairs.folder)
    np.save(pairs.folder / "train.source.npy", np.zeros(3, np.uint16))
    with pytest.raises(DataError, match="prepare the corpus again"):
        Pairs.open(pairs.folder)


def test_rows_are_shifted_by_one_and_padded_behind() -> None:
    split = PairSplit(
        Side.join([np.array([5, 6, END]), np.array([7, END])]),
        Side.join([np.array([8, END]), np.array([9, 9, 9, END])]),
    )
    source, read, labels = split.rows([1, 0])
    assert source.tolist() == [[7, END, PAD], [5, 6, END]]
    assert read.tolist() == [[BEGIN, 9, 9, 9], [BEGIN, 8, PAD, PAD]]
    assert labels.tolist() == [[9, 9, 9, END], [8, END, NO_LABEL, NO_LABEL]]
    assert split.first(1).target.lengths.tolist() == [2]
    assert split.first(0) is split


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(0, 5))
def test_batches_hold_every_pair_once_within_the_budget(lengths: list[int], seed: int) -> None:
    longest, budget = np.array(lengths), 500
    scored = batches_by_length(longest, budget)
    assert sorted(np.concatenate(scored).tolist()) == list(range(len(lengths)))
    assert all(len(batch) * longest[batch].max() <= budget for batch in scored)
    if len(lengths) < ROWS:
        with pytest.raises(DataError, match="training needs 8 or more"):
            batches_by_length(longest, budget, np.random.default_rng(seed))
        return
    trained = batches_by_length(longest, budget, np.random.default_rng(seed))
    every = np.concatenate(trained)
    assert len(set(every.tolist())) == len(every) == len(lengths) // ROWS * ROWS
    assert all(len(batch) % ROWS == 0 and len(batch) * longest[batch].max() <= budget for batch in trained)
    again = batches_by_length(longest, budget, np.random.default_rng(seed))
    assert all(np.array_equal(one, other) for one, other in zip(trained, again, strict=True))


def test_a_budget_that_holds_no_batch_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="batch_tokens = 100 does not hold 8 pairs of 20 tokens"):
        batches_by_length(np.full(9, 20), 100, np.random.default_rng(0))
