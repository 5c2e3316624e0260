"""A run knows its corpus again: by where it lies, seen from here or from the run's folder, and by what is in it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from feedback_transformer import LanguageModel, ModelConfig
from feedback_transformer.cli import main
from feedback_transformer.config import ConfigError
from feedback_transformer.data.corpus import Corpus
from feedback_transformer.data.vocabulary import Bytes, Characters, Words
from feedback_transformer.tasks.language import Language
from feedback_transformer.training import checkpoint
from feedback_transformer.training.record import command_line

SMALL = ["model_dim=8", "num_layers=1", "memory_size=4", "batch_size=4", "bptt=8", "bptt_start=0", "eval_every=2"]


def prepare(out: Path, text: str, tokens: str = "characters") -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    source = out.with_suffix(".txt")
    source.write_text(text, encoding="utf-8")
    assert main(["prepare", "text", "--from", str(source), "--tokens", tokens, "--out", str(out)]) == 0
    return out


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data/abc and runs/abc, as the working directory."""
    monkeypatch.chdir(tmp_path)
    prepare(Path("data/abc"), "abc" * 500)
    assert main(["train", "text", "data=data/abc", *SMALL, "steps=2", "--out", "runs/abc", "--quiet"]) == 0
    return tmp_path


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def commands(run: str) -> list[list[str]]:
    return [["evaluate", run], ["generate", run, "--prompt", "ab", "--max-tokens", "3"], ["train", "--resume", run]]


def test_a_run_finds_its_corpus_from_any_working_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = home / "else" / "where"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    for command in commands("../../runs/abc"):
        assert main(command) == 0


def test_a_project_may_move_as_a_whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    there = tmp_path_factory.mktemp("moved") / "project"
    home.rename(there)
    for command in commands(str(there / "runs" / "abc")):
        assert main(command) == 0
    home.mkdir()


def test_a_corpus_that_moved_alone_is_named_and_then_remembered(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "data" / "abc").rename(home / "abc-moved")
    for command in commands("runs/abc"):
        assert "say where it is with data=FOLDER" in complaint(capsys, *command)
        assert main([*command, "data=abc-moved"]) == 0
    assert main(["train", "--resume", "runs/abc"]) == 0


def test_another_vocabulary_of_equal_size_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(Path("data/abd"), "abd" * 500)
    for command in commands("runs/abc"):
        said = complaint(capsys, *command, "data=data/abd")
        assert "data/abd numbers its tokens differently" in said
        assert "data=FOLDER" in said


def test_another_text_is_refused_to_go_on_with_but_may_be_scored(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(Path("data/cab"), "cab" * 500)
    assert main(["evaluate", "runs/abc", "data=data/cab"]) == 0
    assert "has a different text" in complaint(capsys, "train", "--resume", "runs/abc", "data=data/cab")


def test_checkpoints_without_fingerprints_still_load(home: Path) -> None:
    for name in ("best", "last"):
        path = home / "runs" / "abc" / f"{name}.safetensors"
        tensors, meta = checkpoint.load(path)
        del meta["fingerprints"]
        checkpoint.save(path, tensors, meta)
    for command in commands("runs/abc"):
        assert main(command) == 0


def test_only_the_corpus_can_be_set_to_generate(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "num_layers cannot be set" in complaint(capsys, "generate", "runs/abc", "num_layers=2")


def test_records_tell_no_place_on_this_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "text", f"data={home / 'data' / 'abc'}", *SMALL, "steps=2", "--out", str(home / "runs" / "two")]
    monkeypatch.setattr("sys.argv", ["feedback-transformer", *words])
    assert main(words) == 0
    record = (home / "runs" / "two" / "record.json").read_text()
    assert str(home) not in record
    assert json.loads(record)["run"]["task"]["data"] == "abc"
    assert "data=abc " in command_line()
    assert main(["evaluate", "runs/two"]) == 0


def test_fingerprints_tell_vocabularies_apart_and_nothing_else() -> None:
    assert Characters("abc").fingerprint == Characters("abc").fingerprint
    several = [Characters("abc"), Characters("abd"), Characters("abc", end_of_line=False), Words(["a", "b", "c"])]
    several += [Words(["b", "a", "c"]), Bytes()]
    assert len({vocabulary.fingerprint for vocabulary in several}) == len(several)


def test_a_tokenizer_has_a_fingerprint_that_survives_saving(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    text = "the cat sat on the mat\n" * 50
    prints = [Corpus.open(prepare(tmp_path / name, text, "bpe")).fingerprints() for name in ("one", "two")]
    assert prints[0] == prints[1]


@pytest.mark.parametrize("tokens", ["characters", "bytes", "words", "bpe"])
def test_bits_per_byte_are_the_bits_of_the_text(tokens: str, tmp_path: Path) -> None:
    """A uniform model spends log2(V) bits a token, however many bytes that token stands for."""
    if tokens == "bpe":
        pytest.importorskip("tokenizers")
    folder = prepare(tmp_path / "data", "née — 熊\n" * 400, tokens)
    corpus, task = Corpus.open(folder), Language(str(folder))
    model = LanguageModel(ModelConfig(model_dim=8, memory_size=4), task.input_size)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    scores = task.score(model, task.evaluation("test", 0, 0), torch.device("cpu"))
    text = corpus.vocabulary.decode(corpus.test)
    expected = math.log2(task.input_size) * len(corpus.test) / len(text.encode())
    if tokens == "bytes":
        assert scores == {"bits": pytest.approx(8.0)}
    else:
        assert scores["bits_per_byte"] == pytest.approx(expected)
        assert set(scores) == {"bits_per_byte", "bits" if tokens == "characters" else "perplexity"}
    part = task.score(model, Language(str(folder), valid_tokens=3).evaluation("validation", 0, 0), torch.device("cpu"))
    assert "bits_per_byte" not in part, "of a part of a split nobody knows the bytes"


@pytest.mark.parametrize(("tokens", "text"), [("characters", "abc" * 500), ("words", "a b\nc " * 300)])
def test_text_is_generated_without_a_prompt_where_the_vocabulary_has_no_new_line(
    tokens: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(text)
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    ends = ["--no-end-of-line"] if tokens == "words" else []
    prepared = ["prepare", "text", "--from", str(tmp_path / "text.txt"), "--tokens", tokens, *ends, "--out", data]
    assert main(prepared) == 0
    assert main(["train", "text", f"data={data}", *SMALL, "steps=2", "--out", run, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["generate", run, "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("a")


def test_a_test_split_without_anything_to_score_is_told_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").mkdir()
    for split, text in {"train": "abc" * 500, "valid": "abc" * 50, "test": "a"}.items():
        (tmp_path / "text" / f"{split}.txt").write_text(text)
    data, run = str(tmp_path / "data"), tmp_path / "run"
    prepared = ["prepare", "text", "--from", str(tmp_path / "text"), "--tokens", "characters", "--out", data]
    assert main(prepared) == 0
    said = complaint(capsys, "train", "text", f"data={data}", *SMALL, "steps=2", "--out", str(run), "--quiet")
    assert "the test split of" in said
    assert "there is nothing to score" in said
    assert not (run / "last.safetensors").exists()


def test_an_adaptive_softmax_reports_no_accuracy(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "text", "data=data/abc", *SMALL, "steps=2"]
    assert main([*words, "--out", "runs/whole"]) == 0
    assert "accuracy" in capsys.readouterr().err
    assert main([*words, "cutoffs=1,2", "--out", "runs/parts"]) == 0
    assert "accuracy" not in capsys.readouterr().err
    curve = json.loads((home / "runs" / "parts" / "record.json").read_text())["curve"]
    assert "running_accuracy" not in curve[0]


def test_less_than_no_tokens_to_validate_on_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Language.valid_tokens = -5 must be 0 or more"):
        Language(valid_tokens=-5)
