"""`watch`: a film or a printed episode, and what cannot be watched is a sentence."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from feedback_transformer.cli import main
from feedback_transformer.presets import preset
from feedback_transformer.training.supervised import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch") / "run"
    train(preset("maze", "smoke"), folder)
    return folder


def test_watch_writes_a_film(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    film = tmp_path / "films" / "episode.gif"
    assert main(["watch", str(trained), "--out", str(film), "--oracle", "--speed", "20"]) == 0
    assert "10 steps, reward" in capsys.readouterr().out
    with Image.open(film) as image:
        assert image.n_frames > 5, "frames in which nothing changes are one"  # type: ignore[attr-defined]
        assert image.size == (8 * 28, 6 * 28)


def test_watch_prints_an_episode(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(trained), "--ansi", "--steps", "3"]) == 0
    said = capsys.readouterr().out
    assert all(f"step {step} of 10" in said for step in range(4))
    assert "3 steps, reward" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "film.avi"], "--out = film.avi must end in .gif or .mp4"),
        (["--speed", "0"], "--speed = 0.0 must be from 0.01 to 1000"),
        (["--speed", "nan"], "--speed = nan must be from 0.01 to 1000"),
        (["num_layers=3"], "model.num_layers is 2, not 3; only fields of the task can be set"),
        (["turns=false"], "has other observations or actions"),
        (["sise=7"], "did you mean 'size'"),
    ],
)
def test_a_film_that_cannot_be_is_a_sentence(
    trained: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(trained), *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg here")
def test_an_mp4_has_a_picture_a_step(trained: Path, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    assert main(["watch", str(trained), "--out", str(film), "--steps", "3"]) == 0
    words = ["ffprobe", "-v", "error", "-show_entries", "stream=nb_frames", "-of", "csv=p=0", str(film)]
    frames = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert 2 <= frames <= 4, "the first and one a step, of an episode that may end before"


def test_an_mp4_without_ffmpeg_is_a_sentence(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["watch", str(trained), "--out", str(tmp_path / "film.mp4"), "--steps", "1"]) == 2
    assert "needs the program ffmpeg, which is not installed; choose a .gif" in capsys.readouterr().err


def test_what_is_no_world_cannot_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "random-walk", "--preset", "smoke", "--quiet", "steps=1", "--out", str(tmp_path / "r")]) == 0
    assert main(["watch", str(tmp_path / "r")]) == 2
    assert "random-walk, which is not a world to act in" in capsys.readouterr().err
