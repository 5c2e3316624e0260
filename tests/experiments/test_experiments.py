"""Experiments as data: do they say what they mean, and does `reproduce` run, remember and judge?"""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from feedback_transformer.cli import main
from feedback_transformer.config import parse_assignments
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Claim, Experiment, Score, train_command, verdict
from feedback_transformer.experiments.running import Job, train_all
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.presets import configured, preset
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.training.run import RunConfig

CORPORA = ("ptb-char", "wikitext-2", "wikitext-103", "enwik8")


def parameters(run: RunConfig, vocabulary: int = 50) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in LanguageModel(run.model, vocabulary).parameters())


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_claims_are_about_variants_that_are_run(experiment: Experiment) -> None:
    keys = {variant.key for variant in experiment.variants("laptop")}
    claims = [claim for claim in experiment.claims("laptop") if not claim.published]  # by the paper's scale alone
    assert set().union(*(claim.compared() for claim in claims)) <= keys


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_what_the_paper_claims_is_judged_at_its_own_scale(experiment: Experiment) -> None:
    keys = {variant.key for variant in experiment.variants("paper")}
    asked = [claim for claim in experiment.claims("paper") if not claim.ours]
    assert not keys or not set().union(*(claim.compared() for claim in asked)) - keys


@pytest.mark.parametrize("seeds", [[], ["--seeds", "4"]])
def test_an_experiment_without_its_data_is_left_out_with_one_sentence(
    seeds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "iwslt", "--scale", "smoke", *seeds]) == 1
    said = capsys.readouterr().err
    assert said.count("is skipped") == 1
    assert EXPERIMENTS["iwslt"].prepare_command("smoke") in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_experiments_that_share_a_record_mean_the_same_run(scale: str) -> None:
    seen: dict[str, RunConfig] = {}
    seeds: dict[str, tuple[int, ...]] = {}
    for experiment in EXPERIMENTS.values():
        for key, run in experiment.runs(scale).items():
            assert seen.setdefault(key, run) == run, key
        for variant in experiment.variants(scale):
            assert seeds.setdefault(variant.key, variant.seeds) == variant.seeds, f"{variant.key}: one plan for all"
    assert len({json.dumps(run.to_dict()) for run in seen.values()}) == len(seen), "and no run has two records"


@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("name", ["depth", "depth-words"])
def test_depth_varies_at_constant_parameters(name: str, scale: str) -> None:
    models = [replace(variant.run.model, cutoffs=()) for variant in EXPERIMENTS[name].variants(scale)]
    with torch.device("meta"):  # without embeddings, which are all alike
        counts = [sum(p.numel() for p in LanguageModel(model, 50).core.parameters()) for model in models]
    assert max(counts) / min(counts) < 1.025, "the position keys alone, which are as wide as a head, differ"


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_the_layers_of_a_transformer_have_keys_and_values_of_their_own(scale: str) -> None:
    for experiment in EXPERIMENTS.values():
        for variant in experiment.variants(scale):
            assert variant.run.model.core != "transformer" or not variant.run.model.shared_kv, variant.key


def test_the_models_of_a_comparison_are_of_one_size() -> None:
    for name in ("char-ptb", "memory-composition", "single-layer"):
        counts = [parameters(variant.run) for variant in EXPERIMENTS[name].variants("laptop")]
        assert max(counts) / min(counts) < 1.05, name


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_a_recorded_command_means_the_run_it_stands_for(scale: str) -> None:
    for experiment in EXPERIMENTS.values():
        for run in experiment.runs(scale).values():
            words = shlex.split(train_command(run, scale))
            seed = int(words[words.index("--seed") + 1])
            assignments = parse_assignments(word for word in words[3:] if "=" in word)
            named = words[words.index("--preset") + 1] if "--preset" in words else "laptop"
            assert configured(words[2], named, seed, assignments) == run


def test_a_difference_counts_when_it_is_outside_its_confidence_interval() -> None:
    claim, same = Claim("", "a", "b"), Claim("", "a", "b", equal=True)
    low, high, wide = Score((1.0, 1.1, 1.05)), Score((1.5, 1.4, 1.45)), Score((0.5, 2.5, 1.6))
    assert verdict(claim, low, high, lower_is_better=True) == "holds"
    assert verdict(claim, high, low, lower_is_better=True) == "does not hold"
    assert verdict(claim, high, low, lower_is_better=False) == "holds"
    assert verdict(claim, low, wide, lower_is_better=True) == "not decided: within the noise"
    assert verdict(same, low, wide, lower_is_better=True) == "not decided: within the noise", "noise proves nothing"
    assert verdict(same, high, low, lower_is_better=True) == "does not hold: worse by 0.4"
    assert verdict(same, low, high, lower_is_better=True) == "does not hold: better by 0.4"
    no_worse = replace(same, or_better=True)
    assert verdict(no_worse, low, high, lower_is_better=True) == "holds"
    assert verdict(no_worse, high, low, lower_is_better=True) == "does not hold: worse by 0.4"
    assert verdict(no_worse, low, wide, lower_is_better=True) == "not decided: within the noise"
    assert verdict(claim, Score((1.0,)), high, lower_is_better=True) == "holds (one seed)"
    guess = replace(claim, chance=0.11)
    assert (
        verdict(guess, Score((0.11,)), Score((0.1,)), False)
        == "not decided: neither has learned it, none scores above 0.11 (one seed)"
    )
    assert verdict(guess, Score((0.2,)), Score((0.1,)), False) == "holds (one seed)"
    assert verdict(claim, Score((1.0,)), Score((1.01, 1.02, 1.0)), True) == "not decided: within the noise (one seed)"
    near = Score((1.002, 1.0021, 1.0019))
    assert verdict(same, near, Score((1.0, 1.0001, 0.9999)), lower_is_better=True) == "holds", "within two percent"
    assert verdict(same, Score((0.0, 1.0, 1.0)), Score((1.0, 1.0, 1.0)), False).startswith("not decided")
    alone = "not decided: the spread over seeds is unknown (one seed)"
    assert verdict(claim, Score((30.0,)), Score((28.0,)), False) == alone
    assert (
        verdict(claim, Score((30.0,)), Score((28.0,)), False, widest=1.0) == "not decided: within the noise (one seed)"
    )
    assert verdict(claim, Score((30.0,)), Score((28.0,)), False, widest=0.2) == "holds (one seed)"
    assert verdict(claim, Score((30.0,)), Score((26.0,)), False) == "holds (one seed)"
    assert verdict(claim, Score((30.0,)), Score((29.0,)), False, widest=1.0).startswith("not decided")
    edge = Score((1.0, 2.0, 3.0)), Score((3.2, 4.2, 5.2))
    assert verdict(claim, *edge, True) == "not decided: within the noise", (
        "2.7 standard errors, four degrees of freedom"
    )
    assert verdict(claim, edge[0], Score((3.3, 4.3, 5.3)), True) == "holds", "2.8 of them"
    assert verdict(claim, Score((1.4,)), Score((0.9,)), False, close=0.5).startswith("not decided"), "half a point"
    assert verdict(replace(same, chance=0.9), Score((0.0,) * 3), Score((0.0,) * 3), False).startswith("not decided")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small corpora of the names that the experiments look for."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog on the log\n" * 400)
    for name in CORPORA:
        kind = "words" if name.startswith("wikitext") else "characters"
        out = str(tmp_path / "data" / name)
        assert main(["prepare", "text", "--from", str(text), "--tokens", kind, "--out", out]) == 0
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_reproduce_runs_what_has_no_record_judges_and_draws(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "char-ptb", "--scale", "smoke", "--seeds", "1", "--jobs", "2"]
    assert main([*arguments, "--plan"]) == 0
    assert "3 runs have no record yet" in capfd.readouterr().out
    assert not (home / "runs").exists()
    assert main(arguments) == 0
    said = capfd.readouterr().out
    assert "Feedback is better than the Transformer" in said
    assert "not decided: smoke runs learn nothing" in said
    records = sorted((home / "results" / "smoke" / "ptb-char").glob("*.json"))
    assert [path.stem for path in records] == ["feedback-seed-0", "lstm-seed-0", "transformer-seed-0"]
    assert json.loads(records[0].read_text())["command"].startswith(
        "feedback-transformer train ptb-char --preset smoke"
    )
    picture = xml.etree.ElementTree.parse(home / "results" / "smoke" / "char-ptb.svg")
    lines = [part for part in picture.iter() if part.tag.endswith("polyline")]
    assert len(lines) == 3
    assert all(len(line.attrib["points"].split()) == 2 for line in lines), "a point an evaluation"
    assert main(arguments) == 0
    assert "Every run has a record" in capfd.readouterr().out
    path = home / "results" / "smoke" / "ptb-char" / "lstm-seed-0.json"
    record = json.loads(path.read_text())
    record["run"]["train"]["steps"] += 1
    path.write_text(json.dumps(record))
    path.with_stem("feedback-seed-0 (copy)").write_text(records[0].read_text())
    path.with_stem("feedback-seed-00").write_text(records[0].read_text())
    outcome = Outcome(EXPERIMENTS["char-ptb"], "smoke", home / "results" / "smoke")
    assert len(outcome.records["ptb-char/feedback"]) == 1, "what has no seed is no record"
    assert outcome.score("ptb-char/lstm") is None, "the record of another run does not answer"
    assert outcome.score("ptb-char/feedback") is not None
    verdicts = {answer.words: answer.verdict for answer in outcome.claims()}
    assert verdicts["Feedback is better than recurrence alone (LSTM)"] == "not run"
    assert main(arguments) == 1
    assert f"is the record of another run (train.steps is {record['run']['train']['steps']}" in capfd.readouterr().err
    assert json.loads(path.read_text()) == record, "it is left as it is"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["memory-compositon"], "there is no experiment 'memory-compositon'; did you mean 'memory-composition'"),
        (["depth", "--scale", "big"], "there is no scale 'big'"),
        (["parity", "--scale", "paper"], "parity has no runs at the scale 'paper'"),
    ],
)
def test_mistakes_are_answered_by_a_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_corpus_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "char-ptb", "--scale", "smoke", "--seeds", "1"]) != 0
    error = capfd.readouterr().err
    assert "data/ptb-char" in error
    assert "Traceback" not in error


def test_one_that_fails_does_not_keep_the_others_from_being_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good, bad = preset("random-walk", "smoke"), preset("ptb-char", "smoke").override({"data": str(tmp_path / "none")})
    jobs = {name: Job(name, run, tmp_path / name) for name, run in (("bad", bad), ("good", good))}
    done: list[str] = []
    assert train_all(jobs, 1, Console(), done.append) == 1
    assert done == ["good"]
    assert "1 of 2 failed: bad" in capfd.readouterr().err


def test_a_command_names_the_stages_of_a_curriculum() -> None:
    run = preset("random-walk").override({"curriculum": "length=6;length=12", "position_slopes": "1.0,0.5"})
    words = shlex.split(train_command(run, "laptop"))
    assert configured("random-walk", "laptop", 0, parse_assignments(w for w in words[3:] if "=" in w)) == run


# Whose corpora are made in a file of their own:
PAIRS = ("multi30k", "iwslt", "translation", "recurrent-comparison", "summarization")
WORLDS = ("corridor", "maze", "maze-easy", "water-maze")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in PAIRS])
def test_every_experiment_runs_at_smoke_scale(name: str, home: Path) -> None:
    assert main(["reproduce", name, "--scale", "smoke", "--seeds", "1", "--jobs", "2"]) == 0
    outcome = Outcome(EXPERIMENTS[name], "smoke", home / "results" / "smoke")
    assert all(outcome.records.values())
    assert all(outcome.score(variant.key, score) for variant in outcome.variants for score in outcome.scores)
    picture = (home / "results" / "smoke" / f"{name}.svg").read_text()
    assert ("oracle" in picture) == (name in WORLDS)
