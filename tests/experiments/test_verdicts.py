"""What is said of a claim, from records that the test makes up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.experiments.experiment import Claim, Experiment, Score, Variant, verdict
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.tally import Tally
from tests.experiments.records import write_record

# Experiments whose claims the paper gives no pair of numbers for: figures without numbers, and our own.
WITHOUT_NUMBERS = {
    *("copy-pairs", "reverse-pairs", "char-ptb", "memory-composition", "single-layer", "depth", "depth-words"),
    *("multi30k", "iwslt", "summarization", "corridor", "maze", "maze-easy", "water-maze"),
    *GROUPS["state-tracking"],
}


def keep(
    results: Path,
    variant: Variant,
    test: dict[str, float],
    last: float | None = None,
    seeds: int | None = 3,
    **more: Any,
) -> None:
    """A finished record for each of three seeds, or (None) of the planned ones."""
    metric = next(iter(test))
    for key, run in variant.runs(seeds).items():
        curve = [{"tokens": 1, metric: test[metric] if last is None else last}]
        write_record(results, key, run, test, curve=curve, **more)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_with_the_papers_own_numbers_its_claims_hold(experiment: Experiment, tmp_path: Path) -> None:
    for variant in experiment.variants("paper"):
        names = experiment.scores or ("bits" if experiment.name == "enwik8" else "perplexity",)
        numbers = {name: number for name in names if (number := variant.published(name)) is not None}
        if numbers:
            numbers = dict.fromkeys(names, next(iter(numbers.values()))) | numbers
            tokens = 4 if "grow" in variant.key else 5  # blocks that grow are shorter: fewer tokens
            keep(tmp_path, variant, numbers, seeds=None, best=numbers, tokens=tokens)
    answers = [a for a in Outcome(experiment, "paper", tmp_path).claims() if a.here and not a.ours]
    assert bool(answers) == (experiment.name not in WITHOUT_NUMBERS)
    for answer in answers:
        assert answer.verdict == "holds", answer


def test_a_published_number_is_compared_by_the_spread_of_ours_alone() -> None:
    ours, published = Score((0.97, 0.98, 0.96)), Score((0.99,), exact=True)
    claim = Claim("", "a", "b", published=True)
    assert verdict(claim, ours, published, True) == "not decided: within the noise"  # 4.30 standard errors of 0.0058
    assert verdict(claim, ours, Score((0.996,), exact=True), True) == "holds"
    assert verdict(claim, Score((0.97,)), published, True) == "not decided: the spread over seeds is unknown (one seed)"


def test_what_was_learned_and_lost_again_is_said(tmp_path: Path) -> None:
    variants = {variant.key: variant for variant in EXPERIMENTS["corridor"].variants("laptop")}
    keep(tmp_path, variants["corridor/feedback-30-2"], {"success": 1.0})
    keep(tmp_path, variants["corridor/feedback-30-64"], {"success": 1.0})
    keep(tmp_path, variants["corridor/transformer-30-2"], {"success": 0.5})
    first = Outcome(EXPERIMENTS["corridor"], "laptop", tmp_path).claims()
    assert [answer.verdict for answer in first[:2]] == ["holds reduced", "holds reduced"]
    keep(tmp_path, variants["corridor/feedback-30-2"], {"success": 1.0}, last=0.5)
    then = Outcome(EXPERIMENTS["corridor"], "laptop", tmp_path)
    assert [a.verdict for a in then.claims()[:2]] == ["holds reduced with the best weights, not with the last"] * 2
    assert then.overall().endswith("; 2 of 2 with the best weights, not with the last")


def test_beside_development_numbers_stand_those_of_the_validation_set(tmp_path: Path) -> None:
    for variant in EXPERIMENTS["options"].variants("laptop"):
        keep(tmp_path, variant, {"perplexity": 99.0}, best={"perplexity": 88.0})
    words = Outcome(EXPERIMENTS["options"], "laptop", tmp_path).markdown()
    assert "dev perplexity, reduced" in words
    assert "88.0" in words
    assert "99.0" not in words


def test_what_was_learned_from_other_data_is_no_other_seed(tmp_path: Path) -> None:
    feedback, transformer, _ = EXPERIMENTS["wikitext"].variants("laptop")
    keep(tmp_path, feedback, {"perplexity": 99.0}, fingerprints={"vocabulary": "a"})
    keep(tmp_path, transformer, {"perplexity": 99.0}, fingerprints=None)
    assert Outcome(EXPERIMENTS["wikitext"], "laptop", tmp_path).score("wikitext/transformer") is not None
    keep(tmp_path, transformer, {"perplexity": 99.0}, fingerprints={"vocabulary": "b"})
    with pytest.raises(
        ConfigError, match=r"transformer-seed-0\.json was trained on other data than the rest of wikitext"
    ):
        Outcome(EXPERIMENTS["wikitext"], "laptop", tmp_path)


def test_of_two_that_match_neither_is_the_better_one() -> None:
    one, other = Claim("a matches b", "a", "b", equal=True), Claim("b is as good as a", "b", "a", equal=True)
    assert one.asked() == other.asked()
    assert Claim("", "a", "b").asked() != Claim("", "b", "a").asked()


def test_the_claims_are_counted_in_one_sentence_that_leaves_out_what_is_not_missing() -> None:
    verdicts = ["holds reduced", "does not hold (one seed)", "not decided: within the noise"]
    assert Tally(verdicts, {"copy"}).sentence("of the paper") == (
        "Of 3 claims of the paper in 1 experiment, at reduced scale 1 holds, 1 does not, and 1 is not decided; "
        "1 of these verdicts rests on one seed."
    )
    assert "1 is not decided, and 1 has not been run yet; 1 of" in Tally([*verdicts, "not run"], set()).sentence("")
    unrun = [*verdicts, "not run", *2 * ["not run: only at the paper's scale"]]
    ending = "1 is not decided, 1 has not been run yet, and 2 can be judged only at the paper's scale; 1 of"
    assert ending in Tally(unrun, set()).sentence("")


def test_two_that_score_the_same_have_no_noise() -> None:
    best = Score((1.0, 1.0, 1.0))
    assert verdict(Claim("", "a", "b"), best, best, False) == "not decided: both score the same"
    assert verdict(Claim("", "a", "b"), best, Score((0.9, 1.0, 1.1)), False) == "not decided: within the noise"


def test_runs_that_stop_by_themselves_may_have_read_different_amounts(tmp_path: Path) -> None:
    feedback, transformer, _ = EXPERIMENTS["char-ptb"].variants("paper")
    assert feedback.run.train.patience
    assert not EXPERIMENTS["wikitext"].variants("paper")[0].run.train.patience
    for name, said in (("char-ptb", "holds"), ("wikitext", "not decided: trained on different amounts of data")):
        feedback, transformer, _ = EXPERIMENTS[name].variants("paper")
        keep(tmp_path, feedback, {"perplexity": 1.1, "bits": 1.1}, tokens=9_000)
        keep(tmp_path, transformer, {"perplexity": 1.2, "bits": 1.2}, tokens=13_000)
        assert Outcome(EXPERIMENTS[name], "paper", tmp_path).claims()[0].verdict == said


def test_a_lead_of_single_seeds_is_measured_by_the_scores_not_by_the_leads(tmp_path: Path) -> None:
    leads = Outcome(EXPERIMENTS["iwslt"], "laptop", tmp_path).claims()
    claim = next(answer.claim for answer in leads if answer.claim.than)
    better, worse = claim.than or ("", "")
    scores = {claim.better: 10.5, claim.worse: 9.2, better: 10.0, worse: 9.8}  # leads of 1.3 and 0.2
    for variant in EXPERIMENTS["iwslt"].variants("laptop"):
        if variant.key in scores:
            keep(tmp_path, variant, {"bleu": scores[variant.key]}, seeds=1)
    answers = {a.claim: a.verdict for a in Outcome(EXPERIMENTS["iwslt"], "laptop", tmp_path).claims() if a.here}
    ahead = next(said for asked, said in answers.items() if (asked.better, asked.than) == (claim.better, None))
    assert ahead == "holds reduced (one seed)"
    assert answers[claim] == "not decided: the spread over seeds is unknown (one seed)"


def test_what_frequent_words_score_stands_below_the_score_it_is_of(tmp_path: Path) -> None:
    for variant in EXPERIMENTS["translation"].variants("laptop"):
        keep(tmp_path, variant, {"bleu": 5.0, "tokenized_bleu": 6.0}, bounds={"frequent words": 0.5})
    header, rows = Outcome(EXPERIMENTS["translation"], "laptop", tmp_path).rows()
    level = dict(zip(header, next(row for row in rows if row[0] == "frequent words"), strict=True))
    assert level["test bleu, reduced"] == "0.500"
    assert level["test tokenized bleu, reduced"] == "-"
