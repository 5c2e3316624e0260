"""The demonstration at its smallest, whole: trainings, table, pictures, and a second run that shows them at once."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import pytest

from feedback_transformer.cli import main


def test_the_demo_trains_shows_and_remembers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo", "--preset", "smoke", "--out", str(tmp_path / "demo")]
    assert main(arguments) == 0
    first = capfd.readouterr()
    assert "Training Feedback Transformer, Transformer, LSTM" in first.out
    assert "learn nothing" in " ".join(first.out.split()), "so small a run is not called the reduced one"
    result = json.loads((tmp_path / "demo" / "result.json").read_text())
    assert set(result) == {"feedback", "transformer", "lstm"}
    runs = [dict(record["run"]) for record in result.values()]
    settings = [{**run, "model": {**run["model"], "core": "", "shared_kv": False}} for run in runs]
    assert settings[0] == settings[1] == settings[2], "every model gets the same settings"
    assert len({record["tokens"] for record in result.values()}) == 1, "and the same tokens"
    for name in ("learning.png", "walk.png"):
        picture = matplotlib.image.imread(tmp_path / "demo" / name)
        assert min(picture.shape[:2]) > 300
        assert picture.std() > 0.02, "not an empty picture"

    assert main(arguments) == 0
    again = capfd.readouterr().out
    assert "Training" not in again
    assert "Random walk: accuracy on 8 held-out walks" in again


def test_a_demo_folder_of_other_settings_is_not_mistaken_for_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["train", "random-walk", "--preset", "smoke", "steps=3", "--out", str(tmp_path / "feedback"), "--quiet"]
    assert main(run) == 0
    assert main(["demo", "--preset", "smoke", "--out", str(tmp_path)]) == 2
    assert "holds another run (train.steps is 3, not 20)" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"[]", b"\xff\xfe", b'{"finished": true}', b"{"])
def test_a_damaged_record_in_the_demos_folder_is_a_sentence(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "feedback").mkdir()
    (tmp_path / "feedback" / "record.json").write_bytes(content)
    assert main(["demo", "--preset", "smoke", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'feedback' / 'record.json'}" in said
    assert "is not a record" in said or "not the configuration of a run" in said


def test_the_smoke_demo_leaves_the_folder_of_the_real_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    monkeypatch.setattr("feedback_transformer.commands.demo.demo", lambda folder, *_: chosen.append(folder) or 0)
    for preset in ("smoke", "laptop"):
        assert main(["demo", "--preset", preset]) == 0
    assert chosen == [Path("demo-smoke"), Path("demo")]
