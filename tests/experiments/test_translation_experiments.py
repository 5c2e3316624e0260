"""The experiments on pairs, at the scale of seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedback_transformer.cli import main
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.report.experiments import Outcome
from tests.data.test_pairs import write_pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "corpus"), [("multi30k", "multi30k"), ("iwslt", "iwslt14-deen"), ("translation", "wmt14-ende")]
)
def test_every_experiment_on_translation_runs_at_smoke_scale(
    name: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = map(str, write_pairs(tmp_path))
    command = ["prepare", "pairs", "--from", source, target, "--vocab-size", "300", "--out", f"data/{corpus}"]
    assert main(command) == 0
    assert main(["reproduce", name, "--scale", "smoke", "--seeds", "1", "--jobs", "2"]) == 0
    outcome = Outcome(EXPERIMENTS[name], "smoke", tmp_path / "results" / "smoke")
    assert all(outcome.records.values())
