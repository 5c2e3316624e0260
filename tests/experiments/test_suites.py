"""Table 1, the tracking of states and speed as experiments: their numbers, tables with several scores, and the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from feedback_transformer.cli import main
from feedback_transformer.experiments import EXPERIMENTS, GROUPS, state_tracking, toy_tasks
from feedback_transformer.experiments.costing import known_costs, mean_block, measured_cost
from feedback_transformer.experiments.speed import RECORDS, claim_verdicts, speed_rows
from feedback_transformer.presets import preset
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.suites import suite_table, toy_goals
from feedback_transformer.report.tally import tallies
from tests.experiments.records import write_record

ROOT = Path(__file__).resolve().parents[2]


def make_record(results: Path, name: str, key: str, seed: int, test: dict[str, float], seconds: float = 60.0) -> None:
    run = EXPERIMENTS[name].runs("laptop")[f"{key}-seed-{seed}"]
    write_record(results, f"{key}-seed-{seed}", run, test, cpu_seconds=seconds)


def test_a_table_has_a_column_for_every_score_and_a_claim_its_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        noise = 0.002 * seed
        better, worse = {"character": 0.9 + noise, "sequence": 0.2 + noise}, {"character": 0.5, "sequence": 0.3 + noise}
        make_record(tmp_path, "copy", "copy/feedback", seed, better)
        make_record(tmp_path, "copy", "copy/transformer-4", seed, worse)
    outcome = Outcome(EXPERIMENTS["copy"], "laptop", tmp_path)
    header, rows = outcome.rows()
    assert header[-3:] == ["test character, reduced", "test sequence, reduced", "paper, full scale"]
    assert rows[0][-1] == "0.762 / 0.236"
    assert rows[0][-3].startswith("0.90")
    assert rows[0][-2].startswith("0.20")
    assert all(len(row) == len(header) for row in rows)
    by_words = {answer.words: answer for answer in outcome.claims()}
    characters, sequences = (
        by_words[f"Feedback is better than the Transformer ({s})"] for s in ("character", "sequence")
    )
    assert (characters.verdict, characters.paper) == ("holds reduced", "0.762 against 0.591")
    assert (sequences.verdict, sequences.paper) == ("does not hold", "0.236 against 0.062")
    assert "| copy, sequence | 0.201 ± 0.001 (0.236) | 0.301 ± 0.001 (0.062) | not run" in suite_table(
        "toy-tasks", tmp_path
    )


def test_goals_are_reached_by_the_mean_of_the_seeds(tmp_path: Path) -> None:
    for seed, (random_walk, counts) in enumerate([(0.994, 0.9), (0.998, 1.0)]):
        make_record(
            tmp_path, "random-walk", "random-walk/feedback-longer", seed, {"accuracy": random_walk}, 60 + seed * 60
        )
        make_record(tmp_path, "random-walk", "random-walk/lstm-128-longer", seed, {"accuracy": 0.75})
        make_record(tmp_path, "counting-1k", "counting-1k/feedback", seed, {"sequence": counts})
    lines = toy_goals(tmp_path).splitlines()
    walk = "| random-walk, accuracy: Feedback Transformer, 16,000 updates | ≥ 0.995 |"
    assert f"{walk} 0.9960 ± 0.0028 | 2 | 0.0M | 2.0 | reached | LSTM 0.750 ± 0.000 |" in lines
    counting = "| counting-1k, sequence: Feedback Transformer | ≥ 0.953 |"
    assert f"{counting} 0.9500 ± 0.0707 | 2 | 0.0M | 1.0 | not reached | - |" in lines
    assert "| copy, sequence: Feedback Transformer | ≥ 0.236 | not run | 0 | - | - | not run | - |" in lines
    longer = "| random-walk, accuracy, trained longer | 0.996 ± 0.003 | not run | not run | 0.750 ± 0.000 |"
    assert longer in suite_table("toy-tasks", tmp_path).splitlines()


def test_what_others_have_published_stands_below_ours_with_its_source(tmp_path: Path) -> None:
    make_record(tmp_path, "parity", "parity/feedback", 0, {"scaled": 0.75, "accuracy": 0.875})
    header, rows = Outcome(EXPERIMENTS["parity"], "laptop", tmp_path).rows()
    assert header[-1] == "published"
    assert all(len(row) == len(header) for row in rows)
    assert next(row for row in rows if row[0].startswith("sLSTM (arXiv 2411.12537"))[-1] == "1 (scaled)"
    assert rows[0][-3:] == ["0.750", "0.875", "-"]


def test_every_number_of_the_papers_first_table_is_there() -> None:
    found = [n for toy in toy_tasks.TOYS for model in toy.paper.values() for n in model.values()]
    table = [59.1, 76.2, 6.2, 23.6, 50.2, 74.8, 5.9, 29.2, 99.6, 99.7, 82.4, 95.3, 68, 100, 33.7, 99.1, 37.5, 92.6]
    text = [47.4, 29.1, 82.8, 32.1]  # 8 layers, LSTM
    assert sorted(round(100 * number, 1) for number in found) == sorted([*table, *text])


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_models_of_a_toy_task_learn_from_as_many_tokens(scale: str) -> None:
    for toy in toy_tasks.TOYS:
        runs = [variant.run for variant in toy_tasks.variants(toy, scale) if variant.label in toy_tasks.LABELS.values()]
        assert len({(run.train.steps, run.train.batch_size, run.train.bptt, run.train.bptt_start) for run in runs}) == 1
        alike = [run.override(toy.transformer) for run in runs]  # but for what a Transformer needs
        assert len({(run.train, run.task) for run in alike}) == 1
        assert {run.model.core for run in runs} == {"feedback", "transformer", "lstm"}
        layers = [run.model.num_layers for run in runs if run.model.core == "transformer"]
        deeper = scale == "laptop" or toy.task.startswith("algorithmic")
        assert layers == ([4, 8] if deeper else [4])


def test_the_demonstrations_records_answer_the_random_walk() -> None:
    outcome = Outcome(EXPERIMENTS["random-walk"], "laptop", ROOT / "results")
    assert len(outcome.records["random-walk/feedback"]) == 3
    assert len(outcome.records["random-walk/transformer"]) == 1
    assert len(outcome.records["random-walk/lstm"]) == 1


def test_groups_hold_experiments_that_exist_and_the_paper_has_no_state_tracking() -> None:
    assert all(set(names) <= set(EXPERIMENTS) for names in GROUPS.values())
    assert len(GROUPS["toy-tasks"]) == 9
    assert len(GROUPS["state-tracking"]) == 7
    assert not [run for name in GROUPS["state-tracking"] for run in EXPERIMENTS[name].runs("paper")]
    assert all(len(row) == 3 for row in state_tracking.FORMAL.values())


# ------------------------------------------------------------------------------------------------- speed


def test_speed_is_a_ratio_from_the_benchmarks_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = speed_rows(tmp_path)
    assert {row[4] for row in rows} == {"not run"}
    ratios = (2.0, 0.29, 3.68, 3.0, 0.45, 1.7, 4.2, 1.0)
    papers = [f"{ratio:.2f}x" for ratio in ratios for _ in ("fewer rows", "more")]
    assert [row[2] for row in rows] == [*papers, "1.00x"]
    speeds = [
        {"contender": "feedback", "tokens_per_second": 30.0},
        {"contender": "transformer", "tokens_per_second": 20.0},
    ]
    record = {
        "machine": {"date": "2026-11-17T06:00:00"},
        "training": [{**row, "batch": batch} for batch in (8, 32) for row in speeds],
        "generation": [{**row, "batch": batch} for row in speeds for batch in (1, 32)],
    }
    (tmp_path / "speed-wikitext-103-small.json").write_text(json.dumps(record))
    assert [row[3] for row in speed_rows(tmp_path)[1]] == ["-"] * 2 + ["1.50x"] * 4 + ["-"] * 11
    assert [row[4] for row in speed_rows(tmp_path)[1]] == ["not run"] * 2 + ["holds reduced"] * 4 + ["not run"] * 11
    assert [verdict for _, verdict in claim_verdicts(tmp_path, "--language")] == ["holds reduced"] * 2 + ["not run"]
    slow = [dict(row) for row in record["generation"]]
    slow[1]["tokens_per_second"] = 5.0  # Feedback with 32 rows
    (tmp_path / "speed-wikitext-103-small.json").write_text(json.dumps({**record, "generation": slow}))
    assert claim_verdicts(tmp_path, "--language")[1][1] == "not decided: it depends on the shape"
    assert len(claim_verdicts(tmp_path)) == 9, "a claim that was measured with two batches is one claim"
    half = [row for row in record["generation"] if row["batch"] == 1]
    (tmp_path / "speed-wikitext-103-small.json").write_text(json.dumps({**record, "generation": half}))
    assert claim_verdicts(tmp_path, "--language")[1][1] == "holds reduced", "what was measured decides"
    (tmp_path / "speed-wikitext-103-small.json").write_text(json.dumps({**record, "quick": True}))
    assert claim_verdicts(tmp_path, "--language")[1][1] == "not decided: tiny models"
    depth = [
        {"contender": "feedback", "batch": 1, "decoder_layers": layers, "tokens_per_second": rate}
        for layers, rate in ((1, 30.0), (2, 25.0), (6, 10.0))
    ]
    encoder = [
        {"contender": "feedback", "batch": batch, "encoder_layers": layers, "tokens_per_second": rate}
        for batch, layers, rate in ((1, 6, 10.0), (1, 12, 9.0), (32, 6, 10.0), (32, 12, 6.0))
    ]

    def measured(rate: float) -> dict[tuple[str, str], tuple[str, str]]:
        """The answers when Feedback trains on translation at this rate, with the smaller of the two batches."""
        training = [{**row, "batch": 32} for row in ({**speeds[0], "tokens_per_second": rate}, speeds[1])]
        translation = {**record, "training": training, "generation": [], "depth": depth, "encoder": encoder}
        (tmp_path / "speed-translation.json").write_text(json.dumps(translation))
        return {(row[0], row[1]): (row[3], row[4]) for row in speed_rows(tmp_path)[1]}

    shape = "width 512, 6 encoder and 2 decoder layers"
    training = "translation: training Feedback is no slower (our question)", f"{shape}, B 32"
    for rate in (18.2, 21.8):
        assert measured(rate)[training][1] == "not decided: within the noise", "a ratio varies by a tenth"
    answers = measured(15.0)
    assert answers[training] == ("0.75x", "does not hold")
    assert answers[training[0], f"{shape}, B 128"] == ("-", "not run")
    shallow = "translation: 1 decoder layer decodes 4.2 times as fast as 6"
    assert answers[shallow, "width 512, 6 encoder layers, beam 5, B 1"] == ("3.00x", "does not hold")
    assert answers[shallow, "width 512, 6 encoder layers, beam 5, B 32"] == ("-", "not run")
    deeper = "translation: an encoder of 12 layers instead of 6 hardly slows decoding"
    shape = "width 512, 2 decoder layers, beam 5"
    assert answers[deeper, f"{shape}, B 1"] == ("0.90x", "not decided: within the noise")
    assert answers[deeper, f"{shape}, B 32"] == ("0.60x", "does not hold")
    memory = [
        {"shape": shape, "contender": contender, "megabytes": megabytes}
        for shape in ("d256 L4 S100 B64", "d256 L4 S512 B32")
        for contender, megabytes in (("native", 100.0), ("transformer", 300.0))
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"machine": record["machine"], "memory": memory}))
    assert [row[3:5] for row in speed_rows(tmp_path)[1][:2]] == [["3.00x", "holds reduced"]] * 2
    assert main(["reproduce", "speed", "--plan", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1.50" in said
    assert "to be measured: bench --worlds" in said
    assert "bench --language --out" not in said, "which has its record"
    assert "bench --translation --out" not in said
    assert "bench --out" not in said
    assert len(list(tmp_path.iterdir())) == 3


def test_speed_is_counted_where_it_is_measured(tmp_path: Path) -> None:
    for scale, counted in (("laptop", {"speed"}), ("smoke", {"speed"}), ("paper", set())):
        outcomes = [Outcome(EXPERIMENTS["char-ptb"], scale, tmp_path)]
        assert tallies(outcomes, tmp_path)["of our own"].experiments - {"char-ptb"} == counted


@pytest.mark.slow
def test_speed_is_measured_where_it_has_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "speed", "--scale", "smoke", "--results", str(tmp_path)]
    assert main(command) == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == sorted(RECORDS.values())
    capsys.readouterr()
    assert main(command) == 0
    assert "measuring" not in capsys.readouterr().out, "once is enough"


def test_a_plan_goes_on_where_data_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["reproduce", "wikitext", "--scale", "smoke", "--measure"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "holds no prepared corpus" in said
    assert "9 runs have no record yet: 9 of unknown cost." in said
    assert "Data: feedback-transformer prepare wikitext-2 (its data is not there yet)" in said


def test_a_plan_says_how_the_data_of_its_scale_is_made() -> None:
    prepare = {scale: EXPERIMENTS["wikitext"].prepare_command(scale) for scale in ("laptop", "paper")}
    assert prepare == {
        name: f"feedback-transformer prepare wikitext-{n}" for name, n in (("laptop", 2), ("paper", 103))
    }
    assert "--vocab-size" in EXPERIMENTS["iwslt"].prepare_command("laptop")
    assert "--vocab-size" not in EXPERIMENTS["iwslt"].prepare_command("paper"), "which is of the laptop's size"
    assert EXPERIMENTS["copy"].prepare_command("laptop") == EXPERIMENTS["parity"].prepare_command("paper") == ""


# -------------------------------------------------------------------------------------------------- cost


def test_every_run_of_the_papers_scale_has_been_costed_as_it_is_today() -> None:
    variants = [variant for experiment in EXPERIMENTS.values() for variant in experiment.variants("paper")]
    assert {variant.key for variant in variants} == set(known_costs(variants, ROOT / "results" / "paper"))


def test_a_plan_tells_the_cost_by_records_of_other_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # away from the records of the project
    make_record(tmp_path, "parity", "parity/feedback", 1, {"scaled": 0.5, "accuracy": 0.75}, seconds=600.0)
    assert main(["reproduce", "parity", "--plan", "--results", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "10.0 minutes" in said
    unknown = "9 of unknown cost (--measure times a few updates)"
    assert f"11 runs have no record yet: about 20.0 minutes on one core and {unknown}." in said


def test_a_plan_for_new_records_tells_the_cost_by_those_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_record(tmp_path / "results", "parity", "parity/feedback", 1, {"scaled": 0.5, "accuracy": 0.75}, seconds=600.0)
    assert main(["reproduce", "parity", "--plan", "--results", str(tmp_path / "new")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "records in results" in said
    assert "12 runs have no record yet: about 30.0 minutes on one core and 9 of unknown cost" in said


def test_a_plan_measures_what_no_record_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "recall", "--scale", "smoke", "--seeds", "1", "--measure", "--results", str(tmp_path)]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "two of 20 updates" in said
    assert "unknown" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["costs.json"], "nothing is trained"
    assert main([*command[:-3], "--plan", "--results", str(tmp_path)]) == 0
    assert "two of 20 updates" in " ".join(capsys.readouterr().out.split()), "but what it would cost is kept"
    costs = json.loads((tmp_path / "costs.json").read_text())
    costs["recall/feedback"]["run"] = "another"
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    assert main([*command[:-3], "--plan", "--results", str(tmp_path)]) == 0
    assert "1 of unknown cost" in " ".join(capsys.readouterr().out.split()), "that of another run says nothing"
    (tmp_path / "costs.json").write_text('{"recall/feedback": {"minutes": 1}}')
    assert main([*command[:-3], "--plan", "--results", str(tmp_path)]) == 2
    assert "costs.json is damaged" in capsys.readouterr().err


def test_cost_grows_with_updates_and_with_what_is_left_out_of_a_batch() -> None:
    run = preset("parity", "smoke")
    one = measured_cost(run)
    assert one.updates == 20
    assert one.parameters > 1000
    long = run.override({"steps": "20000", "finetune_steps": "20000", "batch_size": "800"})
    assert measured_cost(long).minutes > 200 * one.minutes
    train = run.override({"bptt_start": "4", "bptt_warmup": "0.5"}).train
    assert mean_block(train) == 0.75
    assert mean_block(run.train) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GROUPS["toy-tasks"], "corridor", "maze", "maze-easy", "water-maze"])
def test_every_model_of_the_paper_is_built_stepped_and_costed(name: str) -> None:
    variants = {variant.run.model: variant for variant in EXPERIMENTS[name].variants("paper")}
    for variant in variants.values():
        cost = measured_cost(variant.run)
        print(f"{variant.key}: {cost}")
        assert cost.minutes > 1
        assert abs(cost.loss) < 100
        decoder_only = name in GROUPS["toy-tasks"] and not name.endswith("-pairs")
        if decoder_only and variant.key.endswith(("feedback", "transformer-4")):
            assert cost.parameters / 1e6 == pytest.approx(3.2, rel=0.03)
