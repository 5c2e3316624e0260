"""From articles with their summaries to a summary of a new one, by the commands that a person uses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from feedback_transformer.cli import main


def write_articles(folder: Path) -> None:
    folder.mkdir()
    for split, count in (("train", 40), ("val", 6), ("test", 6)):
        entries = [
            {"article": f"the {n} cats sat on mat {n} . " * 5, "summary": [f"{n} cats sat .", f"mat {n} ."]}
            for n in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_articles_are_prepared_learned_scored_and_summarized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_articles(tmp_path / "news")
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    prepare = ["prepare", "cnn-dailymail", "--from", str(tmp_path / "news"), "--out", data, "--vocab-size", "300"]
    assert main([*prepare, "--source-words", "12"]) == 0
    assert "train: of 40 pairs 40 with the source cut to --source-words" in capsys.readouterr().out
    train = ["train", "cnn-dailymail", f"data={data}", "--preset", "smoke", "steps=4", "eval_every=2", "num_layers=1"]
    train += ["encoder_layers=1", "batch_tokens=512", "beam=2", "shortest=3", "block_ngrams=0"]
    assert main([*train, "--quiet", "--out", run]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert set(record["test"]) == {"rouge1", "rouge2", "rougeL", "perplexity", "words_per_second"}
    assert record["signature"] == "rouge-score, stemmed, F1"
    assert record["cpu_seconds"] > 0
    assert 0 < record["bounds"]["frequent words"] < 100
    assert "frequent words" in capsys.readouterr().out
    assert main(["evaluate", run, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["rougeL"] == pytest.approx(record["test"]["rougeL"])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the 3 cats sat on mat 3 .\n\nthe 4 cats .\n")))
    assert main(["summarize", run]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4, "a summary is one line, and so is none"
    assert lines[0]
    assert not lines[1]
