"""The report's page, from records that the test makes up."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from feedback_transformer.cli import main
from feedback_transformer.experiments import CHAPTERS, EXPERIMENTS
from feedback_transformer.experiments.costing import Cost, keep_cost
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.readme import filled
from feedback_transformer.report.svg import Row, Scale, Series, dot_chart, line_chart, ticks
from feedback_transformer.training.run import RunConfig
from tests.experiments.records import write_record

VOID = {"meta", "link", "br", "img", "input"}


class Balanced(HTMLParser):
    """Fails when a tag is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_record(
    results: Path, key: str, score: float, metric: str = "bits", experiment: str = "char-ptb", **more: object
) -> None:
    run = more.pop("run", None) or EXPERIMENTS[experiment].runs("laptop")[key]
    assert isinstance(run, RunConfig)
    curve = [{"tokens": n * 1000, metric: score + 1 / n} for n in (1, 2, 3)]
    write_record(results, key, run, {metric: score}, curve=curve, **more)


def test_the_page_is_whole_and_says_what_the_records_say(tmp_path: Path) -> None:
    for seed, noise in enumerate((0.0, 0.001)):
        make_record(tmp_path / "results", f"ptb-char/feedback-seed-{seed}", 1.5 + noise)
        make_record(tmp_path / "results", f"ptb-char/transformer-seed-{seed}", 1.25 + noise)
    out = tmp_path / "page.html"
    assert main(["report", "--results", str(tmp_path / "results"), "--out", str(out)]) == 0
    text = out.read_text()
    parser = Balanced()
    parser.feed(text)
    assert not parser.open
    assert parser.seen.count("section") == len(EXPERIMENTS) + 1, "and how verdicts are reached"
    assert "1.500 ± 0.001 against 1.250 ± 0.001" in text
    assert '<span class="verdict fails">does not hold</span>' in text, "Feedback is worse in these records"
    tables = out.with_suffix(".md").read_text()
    assert "| Feedback is better than the Transformer | 1.500 ± 0.001 against 1.250 ± 0.001 | does not hold |" in tables
    assert tables.count("\n### ") == len(EXPERIMENTS)
    assert tables.count("\n## ") == len(CHAPTERS)
    answers = [answer for name in EXPERIMENTS for answer in Outcome(EXPERIMENTS[name], "laptop", tmp_path).claims()]
    board = text[text.index('class="board"') : text.index("<section")]
    assert board.count("<i class=") == len(answers), "a mark a claim"
    only_paper = [answer for answer in answers if answer.verdict == "not run: only at the paper's scale"]
    said = 2 * len(only_paper) + 1  # in the board and in its section; Table 2 has no other verdict
    assert text.count("not run: only at the paper&#x27;s scale") == said == 13
    assert board.count('<i class="fails"') == 2, "in each experiment that asks for it"
    assert '<div class="bar" aria-hidden="true"><i class="fails" style="flex: 1"></i>' in text, "but counted once"
    assert "from 4 records, 0.1 core-hours" in text
    assert "1.500 ± 0.001" in text
    assert "src=" not in text, "nothing is loaded from elsewhere"


def test_a_page_without_records_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert f"there is no record in {tmp_path} yet" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text().count("not run") >= len(EXPERIMENTS)


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_a_page_can_be_of_another_scale(scale: str, tmp_path: Path) -> None:
    run = EXPERIMENTS["char-ptb"].runs(scale)["ptb-char/feedback-seed-0"]
    make_record(tmp_path, "ptb-char/feedback-seed-0", 1.234, run=run)
    assert main(["report", "--scale", scale, "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "1.234" in (tmp_path / "page.html").read_text()
    assert ("at reduced scale" in (tmp_path / "page.html").read_text()) == (scale != "paper")
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "1.234" not in (tmp_path / "page.html").read_text(), "which is no record of the laptop's run"


def test_the_papers_numbers_stand_beside_ours_also_where_nothing_was_run(tmp_path: Path) -> None:
    words = Outcome(EXPERIMENTS["wikitext"], "laptop", tmp_path).markdown()
    assert "| Feedback is better than the Transformer | 18.3 against 19.9 | - | not run |" in words
    commands = "`feedback-transformer prepare wikitext-2` and `feedback-transformer reproduce wikitext`"
    assert f"Not run yet: 5 runs, with {commands}" in words


def test_several_claims_are_counted_in_one_verdict(tmp_path: Path) -> None:
    make_record(tmp_path, "ptb-char/feedback-seed-0", 1.0)
    make_record(tmp_path, "ptb-char/transformer-seed-0", 1.5)
    assert Outcome(EXPERIMENTS["char-ptb"], "laptop", tmp_path).overall() == "1 holds reduced, 1 not run; one seed"
    assert Outcome(EXPERIMENTS["wikitext"], "laptop", tmp_path).overall() == "not run"
    assert Outcome(EXPERIMENTS["depth"], "laptop", tmp_path).overall() == "nothing to compare with yet"


def test_worlds_are_told_in_frames_beside_the_oracle_and_chance(tmp_path: Path) -> None:
    for seed, oracle in enumerate((10.0, 12.0)):
        bounds = {"oracle": oracle, "chance": 1.0}
        make_record(tmp_path, f"maze/feedback-seed-{seed}", 5.0, "reward", "maze", unit="frames", bounds=bounds)
    words = Outcome(EXPERIMENTS["maze"], "laptop", tmp_path).markdown()
    assert "| model | parameters | frames | minutes | seeds | test reward, reduced |" in words
    assert "| oracle | - | - | - | - | 11.000 |" in words
    assert "| chance | - | - | - | - | 1.000 |" in words


def test_the_tables_never_overwrite_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]) == 2
    assert "name the page itself, for example report.html" in capsys.readouterr().err


def test_an_axis_of_doublings_has_equal_steps() -> None:
    near = Scale(2, 64, 0, 100, doubling=True)
    assert near(8) - near(4) == pytest.approx(near(64) - near(32))
    chart = line_chart([Series("a", 0, [(2, 0.1), (4, 0.5), (64, 1.0)])], "memory", "success", by_place=True)
    assert [mark for mark in ("2", "4", "64") if f">{mark}</text>" in "".join(chart.parts)] == ["2", "4", "64"]


def test_a_published_number_is_drawn_where_it_shares_the_axis_with_ours() -> None:
    near = "".join(dot_chart([Row("a", 0, [0.2, 0.4], 0.6), Row("b", 1, [0.8])], "accuracy").parts)
    assert near.count("<polygon") == 1
    assert "diamond: the paper" in near
    far = "".join(dot_chart([Row("a", 0, [185.0, 188.0], 18.3)], "perplexity").parts)
    assert "<polygon" not in far, "it would squeeze ours together"
    assert "diamond" not in far


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_the_cost_of_the_papers_scale_is_told_where_it_was_measured(tmp_path: Path) -> None:
    first, second, *_ = EXPERIMENTS["random-walk"].variants("paper")
    keep_cost(first, Cost(3_200_000, 16_000, 1440.0, 1.0), tmp_path / "paper")
    keep_cost(replace(second, run=first.run), Cost(1, 1, 1.0, 1.0), tmp_path / "paper")  # measured before it changed
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    row = "| random-walk (1 of 3 models) | 3 | 3,200,000 | 16,000 | 3.0 |"
    assert row in (tmp_path / "page.md").read_text()
    assert "The paper's own scale" in (tmp_path / "page.html").read_text()


def test_a_page_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "is a folder; name the page itself" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"run"', "[1]"])
def test_a_truncated_record_is_a_sentence(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, command in (("ptb-char/feedback-seed-0.json", "report"), ("bench-worlds.json", "reproduce")):
        path = tmp_path / command / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        more = ["--out", str(tmp_path / "page.html")] if command == "report" else ["speed", "--plan"]
        assert main([command, "--results", str(tmp_path / command), *more]) == 2
        assert f"{path.name} is not a record" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["test", "best", "curve", "cpu_seconds", "parameters", "tokens"])
def test_a_record_that_lacks_a_part_is_a_sentence(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_record(tmp_path, "ptb-char/feedback-seed-0", 1.0)
    path = tmp_path / "ptb-char" / "feedback-seed-0.json"
    record = json.loads(path.read_text())
    del record[part]
    path.write_text(json.dumps(record))
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert f"it has no {part}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        *(("test", damage) for damage in ({}, None, {"bits": None}, {"bits": float("nan")})),
        *(("best", damage) for damage in ({"step": 1}, None)),
        *(("curve", damage) for damage in ([], [{}], [{"tokens": 1, "bits": float("inf")}])),
    ],
)
def test_a_finished_record_without_scores_is_a_sentence(
    part: str, damage: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_record(tmp_path, "ptb-char/feedback-seed-0", 1.0)
    path = tmp_path / "ptb-char" / "feedback-seed-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: damage}))
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert f"its {part} holds no scores" in capsys.readouterr().err


def test_a_record_without_the_score_that_is_asked_for_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "wmt14-ende/feedback-1-seed-0"
    make_record(tmp_path, key, 1.0, metric="bleu", experiment="translation")
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert f"{tmp_path / key}.json has no score 'tokenized_bleu'" in capsys.readouterr().err


def test_times_that_differ_between_seeds_are_told_where_they_were_measured_well(tmp_path: Path) -> None:
    for seconds, told in (
        (0.0, ""),
        (60.0, ", one seed up to 2.0 times as long as another: times compare only roughly"),
    ):
        for seed in (0, 1):
            make_record(tmp_path, f"ptb-char/feedback-seed-{seed}", 1.0, cpu_seconds=seconds * (1 + seed))
        assert f"on one core (a processor{told})" in Outcome(EXPERIMENTS["char-ptb"], "laptop", tmp_path).note()


def test_results_are_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "parity", "--plan", "--results", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder for the records" in capsys.readouterr().err


def test_results_that_cannot_be_kept_are_not_trained_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    words = ["reproduce", "parity", "--scale", "smoke", "--runs", str(tmp_path / "runs")]
    assert main([*words, "--results", str(tmp_path / "file" / "results")]) == 2
    assert "cannot write to" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_place_for_a_table_that_nobody_makes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="demos"):
        filled("<!-- table:demos -->\n<!-- end -->", tmp_path)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.72, 1.735), (-3.0, 1200.0), (1e-5, 2e-5), (0.06, 0.876)])
def test_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert 3 <= len(marks) <= 8
    assert all(low - 1e-9 <= mark <= high + 1e-9 for mark in marks)


def test_to_be_ahead_by_more_one_has_to_be_ahead(tmp_path: Path) -> None:
    for key, bleu in (("feedback-1", 7.0), ("transformer-1", 10.0), ("feedback-2", 5.0), ("transformer-2", 10.0)):
        run = EXPERIMENTS["translation"].runs("laptop")[f"wmt14-ende/{key}-seed-0"]
        write_record(tmp_path, f"wmt14-ende/{key}-seed-0", run, {"tokenized_bleu": bleu, "bleu": bleu})
    answers = {a.words: a for a in Outcome(EXPERIMENTS["translation"], "laptop", tmp_path).claims()}
    gap = answers["Feedback's lead is larger with 1 decoder layer than with 2"]
    assert gap.here == "-3.000 against -5.000"
    assert gap.verdict == "does not hold (one seed)"


def test_an_experiment_against_published_numbers_alone_is_for_the_papers_scale(tmp_path: Path) -> None:
    run = EXPERIMENTS["recurrent-comparison"].runs("laptop")["wmt14-ende/feedback-2-seed-0"]
    write_record(tmp_path, "wmt14-ende/feedback-2-seed-0", run, {"tokenized_bleu": 5.0, "bleu": 5.0})
    outcome = Outcome(EXPERIMENTS["recurrent-comparison"], "laptop", tmp_path)
    assert outcome.overall() == "not run: only at the paper's scale"
    assert {answer.paper for answer in outcome.claims()} == {f"29.5 against {best}" for best in (28.5, 28.9, 29.3)}
    assert [variant.run.model.num_layers for variant in EXPERIMENTS["recurrent-comparison"].variants("paper")] == [6, 6]
