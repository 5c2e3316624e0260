"""The benchmark runs, and its record says all that it should. How fast anything is, no test asks."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path

import pytest

from feedback_transformer import LanguageModel
from feedback_transformer.benchmarks.contenders import set_spans
from feedback_transformer.benchmarks.language import SMALL
from feedback_transformer.benchmarks.shapes import SHAPES, find_shapes
from feedback_transformer.benchmarks.spans import SHAPE
from feedback_transformer.benchmarks.speed import take_turns
from feedback_transformer.benchmarks.translation import SIX_TWO, zipf
from feedback_transformer.commands.bench import WHOLE, _place, add_arguments, run
from feedback_transformer.config import ConfigError
from feedback_transformer.report.goals import goal_table
from feedback_transformer.report.spans import span_table
from feedback_transformer.report.speed import draw_chart, speed_tables
from feedback_transformer.report.whole_models import LANGUAGE, TRANSLATION, whole_model_speed
from feedback_transformer.report.worlds import world_speed
from feedback_transformer.training.record import read_record

ROW = {"seconds", "tokens_per_second"}
FIELDS = {
    "training": {"shape", "dropout", "shared_kv", "contender", *ROW},
    "floor": {"shape", "shared_kv", "gigaflops", *ROW},
    "memory": {"shape", "dropout", "shared_kv", "contender", "megabytes"},
    "generation": {"memory_size", "batch", "contender", *ROW},
}


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def bench(*arguments: str) -> int:
    return run(options(*arguments))


@pytest.fixture(scope="module")
def record_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "bench"
    assert bench("--quick", "--measure", "training", "generation", "--out", str(out)) == 0
    return out.with_suffix(".json")


def test_the_record_has_every_field(record_path: Path) -> None:
    record = json.loads(record_path.read_text())
    assert set(record) == {"machine", "settings", "notes", "skipped", "quick", *FIELDS}
    assert {"processor", "threads", "python", "torch", "system", "commit", "date"} <= set(record["machine"])
    for name in ("training", "floor", "generation"):
        assert record[name]
        assert all(set(row) == FIELDS[name] for row in record[name])
    assert {"fused", "loop", "transformer", "lstm"} <= {row["contender"] for row in record["training"]}
    assert {(row["dropout"], row["shared_kv"]) for row in record["training"]} == {
        (0.2, True),
        (0.0, True),
        (0.2, False),
    }


def test_memory_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    bench("--quick", "--measure", "memory", "--contenders", "fused", "--out", str(out))
    (row,) = json.loads(out.with_suffix(".json").read_text())["memory"]
    assert set(row) == FIELDS["memory"]
    assert row["megabytes"] >= 0


def test_tables_come_from_the_record(record_path: Path) -> None:
    text = speed_tables(json.loads(record_path.read_text()))
    assert "| transformer | " in text
    assert "**Training, tokens/s, dropout 0.2**" in text


def test_two_threads_are_compared_with_one_on_the_same_machine_and_code_only() -> None:
    one = read_record(Path(__file__).parents[2] / "results" / "bench.json")
    other = {**one, "machine": {**one["machine"], "processor": "another"}}
    assert goal_table(one, one).splitlines()[-1].endswith("| 1.00 | not reached |")
    assert goal_table(one, other).splitlines()[-1].endswith("| not measured |")


def test_a_chart_is_drawn_from_a_record(record_path: Path, tmp_path: Path) -> None:
    draw_chart(json.loads(record_path.read_text()), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000
    assert bench("--from-record", str(record_path)) == 0


def test_the_spans_of_a_benchmark_are_measured_shown_and_drawn(tmp_path: Path) -> None:
    out = tmp_path / "span"
    assert bench("--spans", "--quick", "--contenders", "fused", "--out", str(out)) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert [(row["span"], row["long_heads"]) for row in record["spans"]] == [(64, 0), (64, 1)]
    assert all(row["microseconds_a_token"] > 0 for row in record["spans"])
    assert "| one head 256, the others 64 | " in span_table(record)
    record["machine"]["commit"] = None  # measured outside a repository
    assert "commit None; d16 L2" in span_table(record)
    assert out.with_suffix(".png").stat().st_size > 1000
    assert bench("--spans", "--from-record", str(out.with_suffix(".json"))) == 0
    with pytest.raises(ConfigError, match=r"span.json has no .* of another kind; choose its option \(--language, "):
        bench("--from-record", str(out.with_suffix(".json")))


def test_a_shape_with_spans_makes_a_model_that_sees_as_far() -> None:
    shape = dataclasses.replace(SHAPE, span=256, long_heads=1)
    model = LanguageModel(shape.config("feedback"), vocab_size=2)
    set_spans(model, shape)
    assert [span.reach() for span in model.spans()] == [256, 256, 256, 8192]
    assert model.core.stack.reach() == 8192


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match="no contender is called turbo"):
        bench("--contenders", "turbo")
    with pytest.raises(ValueError, match="no shape has B1000 in its name"):
        bench("--shapes", "B1000")


def test_benchmarks_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="--language and --worlds are benchmarks of their own"):
        bench("--language", "--worlds")
    for option in (["--shapes", "B64"], ["--measure", "training"], ["--dropout", "0.1"], ["--contenders", "native"]):
        with pytest.raises(ValueError, match=f"{option[0]} has no meaning with --translation"):
            bench("--translation", *option)


def test_the_arithmetic_of_a_step_is_that_of_its_products() -> None:
    shape = SHAPES[1]
    # 4 layers of 10 D^2 and one pair of 2 D^2, 3 S D of attention a layer: three products each; then carried memories.
    weights = 4 * 10 * 256**2 + 2 * 256**2
    expected = 6 * 64 * 64 * (weights + 4 * 3 * 100 * 256) + 2 * 2 * 64 * 100 * 2 * 256**2
    assert shape.arithmetic() == expected
    assert find_shapes(["S512"]) == (SHAPES[3],)


def test_a_whole_language_model_is_measured_and_stands_beside_the_paper(tmp_path: Path) -> None:
    out = tmp_path / "language"
    assert bench("--language", "--quick", "--out", str(out)) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert {(row["contender"], row["batch"]) for row in record["training"]} == {(one, 2) for one in SMALL.contenders()}
    assert all(row["tokens_per_second"] > 0 for row in record["training"] + record["generation"])
    assert "84,400 (0.29x)" in whole_model_speed(out.with_suffix(".json"), LANGUAGE)
    assert "Not measured yet" in whole_model_speed(tmp_path / "nothing.json", LANGUAGE)
    assert bench("--language", "--from-record", str(out.with_suffix(".json"))) == 0
    assert record["quick"]
    with pytest.raises(ConfigError, match="it is a record of another kind"):
        bench("--translation", "--from-record", str(out.with_suffix(".json")))


def test_a_whole_encoder_decoder_is_measured_and_stands_beside_the_paper(tmp_path: Path) -> None:
    out = tmp_path / "translation"
    assert bench("--translation", "--quick", "--out", str(out)) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert {(row["contender"], row["batch"]) for row in record["training"]} == {
        (one, 2) for one in SIX_TWO.contenders()
    }
    assert all(row["tokens_per_second"] > 0 for row in record["training"] + record["generation"])
    text = whole_model_speed(out.with_suffix(".json"), TRANSLATION)
    assert "126,000 (0.45x)" in text
    assert "5,410 (1.70x)" in text
    assert (SIX_TWO.model.encoder_layers, SIX_TWO.model.num_layers) == (6, 2)
    assert {(row["contender"], row["decoder_layers"]) for row in record["depth"]} == {
        (name, depth) for name in ("feedback", "transformer") for depth in (1, 2)
    }
    assert {(row["contender"], row["encoder_layers"]) for row in record["encoder"]} == {
        (name, depth) for name in ("feedback", "transformer") for depth in (2, 3)
    }
    for part, where in (("decoder", "depth"), ("encoder", "encoder")):
        times = [row["seconds"] for row in record[where] if row["contender"] == "feedback"]
        assert f"| {times[1] / times[0]:.2f}x |" in text, part
    assert "| 4.2x |" in text, "the paper's"


def test_the_measured_language_model_is_the_papers_small_one() -> None:
    m = SMALL.model
    assert (m.num_layers, m.model_dim, m.num_heads, m.head_dim, m.ff_dim, m.memory_size) == (4, 512, 8, 128, 4096, 512)
    assert SMALL.vocabulary == 267_735


def test_words_are_drawn_by_zipfs_law() -> None:
    words = zipf(100, 1000, 10_000)
    assert 0 <= int(words.min()) <= int(words.max()) < 10_000
    first, tenth = ((words == rank).sum().item() for rank in (0, 9))
    assert 5 < first / tenth < 20


def test_worlds_are_measured_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feedback_transformer.benchmarks.worlds.STEPS", 3)
    monkeypatch.setattr("feedback_transformer.benchmarks.worlds.COPIES", 8)
    assert bench("--worlds", "--quick", "--out", str(tmp_path / "worlds")) == 0
    path = tmp_path / "worlds.json"
    record = json.loads(path.read_text())
    assert [row["world"] for row in record["worlds"]] == ["corridor", "maze", "maze-easy", "water-maze"]
    assert [row["contender"] for row in record["learning"]] == ["feedback", "transformer", "lstm"]
    assert len(record["bounds"]) == 8
    assert all(row["oracle"] > row["chance"] for row in record["bounds"])
    assert all(row["frames_per_second"] > 0 for row in record["learning"])
    assert "| Transformer | " in world_speed(path)
    assert bench("--worlds", "--from-record", str(path)) == 0


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    blind = WHOLE._replace(measure=lambda *_: pytest.fail("it measured"))
    monkeypatch.setattr("feedback_transformer.commands.bench.WHOLE", blind)
    with pytest.raises(ConfigError, match=r"cannot write to .*file"):
        bench("--quick", "--out", str(tmp_path / "file" / "bench"))


@pytest.mark.parametrize("given", ["torch2.13", "torch2.13.json", "torch2.13.png"])
def test_a_name_may_have_dots_and_a_chart_is_told_of_if_there_is_one(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench("--quick", "--measure", "generation", "--contenders", "loop", "--out", str(tmp_path / given))
    assert [path.name for path in tmp_path.iterdir()] == ["torch2.13.json"]
    assert "chart:" not in capsys.readouterr().out


@pytest.mark.parametrize("other", ["--quick", "--dropout 0", "--threads 2", "--repeats 1", "--measure memory"])
def test_a_part_of_the_benchmark_does_not_replace_the_record_of_the_whole(other: str) -> None:
    assert _place(WHOLE, options("--repeats", "6")) == Path("results/bench")
    assert _place(WHOLE, options(*other.split())) == Path("results/bench-part")


def test_a_file_that_is_no_record_of_a_benchmark_is_refused(tmp_path: Path) -> None:
    for text, sentence in (("[]", "is not a record (it holds no object)"), ("{}", "has no ")):
        (tmp_path / "file.json").write_text(text)
        with pytest.raises(ConfigError, match=rf"file.json {re.escape(sentence)}"):
            bench("--from-record", str(tmp_path / "file.json"))


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_first_call_that_is_slow_does_not_count(repeats: int) -> None:
    """Building the engine, filling caches: with one turn only, there is one more call before it."""
    durations, now = iter([9.0, 1.0, 1.0]), [0.0]

    def run() -> None:
        now[0] += next(durations)

    assert take_turns({"only": run}, repeats, clock=lambda: now[0]) == {"only": 1.0}
