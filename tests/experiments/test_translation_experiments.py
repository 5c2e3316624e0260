"""The experiments on pairs, at the scale of seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedback_transformer.cli import main
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.costing import measured_cost
from feedback_transformer.report.experiments import Outcome
from tests.data.test_pairs import write_pairs
from tests.experiments.records import write_record

CORPORA = {
    "iwslt": "iwslt14-deen",
    "translation": "wmt14-ende",
    "recurrent-comparison": "wmt14-ende",
    "summarization": "cnn-dailymail",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "corpus"), [("multi30k", "multi30k"), *CORPORA.items()])
def test_every_experiment_on_pairs_runs_at_smoke_scale(
    name: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = map(str, write_pairs(tmp_path))
    command = ["prepare", "pairs", "--from", source, target, "--vocab-size", "300", "--out", f"data/{corpus}"]
    assert main(command) == 0
    assert main(["reproduce", name, "--scale", "smoke", "--seeds", "1", "--jobs", "2"]) == 0
    outcome = Outcome(EXPERIMENTS[name], "smoke", tmp_path / "results" / "smoke")
    assert all(outcome.records.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "corpus"), CORPORA.items())
def test_every_model_of_the_paper_on_pairs_is_built_stepped_and_costed(
    name: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a handful of pairs with a small vocabulary: all but the embeddings is as large as it is there."""
    monkeypatch.chdir(tmp_path)
    source, target = map(str, write_pairs(tmp_path))
    assert main(["prepare", "pairs", "--from", source, target, "--vocab-size", "300", "--out", f"data/{corpus}"]) == 0
    costs = {}
    for variant in {variant.run.model: variant for variant in EXPERIMENTS[name].variants("paper")}.values():
        costs[variant.key] = cost = measured_cost(variant.run)
        print(f"{variant.key}: {cost}")
        assert cost.minutes > 1
        assert 0 < cost.loss < 100
    assert min(cost.parameters for cost in costs.values()) > 10e6, "full size"


@pytest.mark.parametrize("name", ["multi30k", *CORPORA])
def test_the_page_names_the_command_that_makes_the_data(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "translation.md").read_text(encoding="utf-8")
    assert f"| `{name}` | `{EXPERIMENTS[name].prepare}`" in page


def test_a_gap_is_compared_with_a_gap_and_speed_has_its_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bleu = {"feedback-1": 27.0, "transformer-1": 20.0, "feedback-6": 30.0, "transformer-6": 29.0}
    for key, run in EXPERIMENTS["multi30k"].runs("laptop").items():
        name = key.removeprefix("multi30k/").removesuffix("-seed-0")
        if name in bleu:
            write_record(tmp_path, key, run, {"bleu": bleu[name], "words_per_second": 612.3})
    outcome = Outcome(EXPERIMENTS["multi30k"], "laptop", tmp_path)
    words = "Feedback's lead is larger with 1 decoder layer than with 6"
    answer = next(answer for answer in outcome.claims() if answer.words == words)
    assert (answer.here, answer.verdict) == ("7.000 against 1.000", "holds reduced (one seed)")
    header, rows = outcome.rows()
    assert [row[header.index("words/s")] for row in rows] == ["612", "-", "-", "612"] * 2
    assert main(["reproduce", "iwslt", "--plan", "--results", str(tmp_path)]) == 0
    assert "Data: feedback-transformer prepare iwslt14-deen --from FOLDER --vocab-size 4000" in capsys.readouterr().out
