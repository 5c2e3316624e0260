"""From two files of sentences to a translation on the standard output, by the commands that a person uses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from feedback_transformer.cli import main
from tests.data.test_pairs import write_pairs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates, which has learned nothing but does all that a trained one does."""
    home = tmp_path_factory.mktemp("translate")
    source, target = map(str, write_pairs(home))
    assert main(["prepare", "pairs", "--from", source, target, "--vocab-size", "300", "--out", str(home / "data")]) == 0
    run = ["train", "pairs", f"data={home / 'data'}", "--preset", "smoke", "steps=4", "eval_every=2", "num_layers=1"]
    run += ["encoder_layers=1", "batch_tokens=512", "keep_checkpoints=2", "warmup_steps=1"]
    assert main([*run, "--quiet", "--out", str(home / "run")]) == 0
    return home / "run"


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_a_line_in_is_a_line_out_whatever_the_number_read_at_a_time(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "ein Mann .\n\nläuft\r schnell\u2028über die Straße .\nein"
    (tmp_path / "in.txt").write_text(text, encoding="utf-8", newline="\n")
    outputs = []
    for lines in ("1", "3"):
        out = tmp_path / f"out{lines}.txt"
        command = ["translate", str(trained), "beam=2", "extra_length=3", "--input", str(tmp_path / "in.txt")]
        assert main([*command, "--output", str(out), "--lines", lines]) == 0
        outputs.append(lines_of(out))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 4
    assert outputs[0][1] == ""
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    assert main(["summarize", str(trained), "beam=2", "extra_length=3"]) == 0
    said = capsys.readouterr()
    assert said.out.split("\n")[:-1] == outputs[0]
    assert "4 lines" in said.err
    assert "words/s" in said.err


def test_drawn_translations_follow_their_seed(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ein Mann läuft .\n", encoding="utf-8")
    outputs = []
    for seed in ("1", "1", "2"):
        out = tmp_path / "out.txt"
        command = ["translate", str(trained), "--input", str(tmp_path / "in.txt"), "--output", str(out)]
        assert main([*command, "--temperature", "1", "--seed", seed]) == 0
        outputs.append(out.read_text(encoding="utf-8"))
    assert outputs[0] == outputs[1] != outputs[2]


def test_evaluate_tells_scores_signature_and_speed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(trained), "beam=1"]) == 0
    said = capsys.readouterr().out
    assert "bleu" in said
    assert "words per second" in said
    assert "tok:13a" in said
    assert main(["evaluate", str(trained), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    record = json.loads((trained / "record.json").read_text())
    assert record["test"].pop("words_per_second") > 0
    assert {name: scores[name] for name in record["test"]} == pytest.approx(record["test"])


def test_tuning_keeps_the_best_decoding_for_later(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "best.safetensors").write_bytes((trained / "best.safetensors").read_bytes())
    assert main(["tune", str(run), "length_penalty=0,1", "shortest=2,4", "beam=2"]) == 0
    said = capsys.readouterr().out
    assert said.count("beam=2") == 5
    kept = json.loads((run / "decoding.json").read_text())["decoding"]
    assert set(kept) == {"length_penalty", "shortest", "beam"}
    assert main(["evaluate", str(run)]) == 0
    assert f"beam=2 length_penalty={float(kept['length_penalty'])}" in capsys.readouterr().out
    assert main(["tune", str(run), "test_pairs=1,2"]) == 2
    assert "test_pairs cannot be tuned; choose among beam" in capsys.readouterr().err
    (run / "decoding.json").write_text("[]")
    assert main(["evaluate", str(run)]) == 2
    assert "decoding.json is damaged" in capsys.readouterr().err


def test_checkpoints_are_averaged(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["average", str(trained), "--last", "2"]) == 0
    assert "is the mean of step-00000002, step-00000004" in capsys.readouterr().out
    assert main(["average", str(trained), "--last", "2", "--out", str(trained / "deep" / "mean.safetensors")]) == 0
    assert (trained / "deep" / "mean.safetensors").exists()
    assert main(["average", str(trained)]) == 0
    assert "is the mean of step-00000002, step-00000004" in capsys.readouterr().out
    assert main(["average", str(trained), "--last", "3"]) == 2
    assert "keeps 2 checkpoints of evaluations, not 3; average all of them with --last 2" in capsys.readouterr().err
    assert main(["average", str(trained), "--out", str(trained / "config.json" / "mean.safetensors")]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_files_are_scored_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a b c d e\nf g h i j\n")
    other.write_text("a b c d e\nf g h i j\n")
    assert main(["score", str(one), str(other), "--language", "de"]) == 0
    said = capsys.readouterr().out
    assert "bleu 100.00, tokenized bleu 100.00" in said
    assert "tok:13a" in said
    assert main(["score", str(one), str(other), "--measure", "rouge"]) == 0
    assert "rougeL 100.00" in capsys.readouterr().out
    other.write_text("a b c d e\n")
    assert main(["score", str(one), str(other)]) == 2
    assert "has 2 lines and" in capsys.readouterr().err


def test_a_mistake_is_a_sentence(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy, empty = tmp_path / "toy", tmp_path / "empty"
    empty.write_text("")
    assert main(["train", "copy-pairs", "--preset", "smoke", "steps=1", "--quiet", "--out", str(toy)]) == 0
    for arguments, sentence in {
        ("translate", str(toy)): "was trained on copy-pairs, which has no text to translate",
        ("translate", str(trained), "beam=0"): "beam = 0 must be 1 or more",
        ("translate", str(trained), "--input", str(tmp_path / "none")): "cannot open",
        ("translate", str(trained), "--input", str(empty), "--output", str(empty)): "is also the input",
        ("translate", str(trained), "--top-k", "3"): "--top-k and --top-p are for sampling; give --temperature too",
        ("evaluate", str(trained), "--episodes", "3"): "for fewer pairs set test_pairs=N",
        ("score", str(empty), str(empty)): "is empty; give a file with one text per line",
        ("train", "pairs"): "Translation.data is not set",
        ("train", "pairs", "data=nowhere"): "nowhere holds no prepared pairs",
        ("train", "multi30k", "--preset", "paper"): "the paper has no experiment on multi30k",
    }.items():
        assert main(list(arguments)) == 2
        assert sentence in capsys.readouterr().err
