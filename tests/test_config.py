"""Configurations: an invalid one is a sentence that names the field, its value and the way out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from feedback_transformer.config import ConfigError, ModelConfig, TrainConfig, from_dict, override, to_dict
from feedback_transformer.presets import SCALES, preset
from feedback_transformer.tasks import STATES, TASKS
from feedback_transformer.tasks.task import derive_seed
from feedback_transformer.training.run import RunConfig


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"core": "gru"}, "ModelConfig.core = 'gru' is not known; choose one of feedback, transformer, lstm"),
        ({"norm": "middle"}, "ModelConfig.norm = 'middle' is not known; choose one of pre, post"),
        ({"num_layers": 0}, "ModelConfig.num_layers = 0 must be 1 or more"),
        ({"model_dim": 10, "num_heads": 3}, "model_dim = 10 is not a multiple of num_heads = 3"),
        ({"dropout": 1.0}, "ModelConfig.dropout = 1.0 must be from 0 up to, but not including, 1"),
        ({"memory": "middle"}, "ModelConfig.memory = 'middle' is not known; choose one of weighted-sum"),
        ({"memory": "layer:K"}, "choose a layer from 0"),
        ({"memory": "layer:3"}, "choose a layer from 0 (the embedding) to 2"),
        ({"position_slopes": (1.0,)}, "ModelConfig.position_slopes = (1.0,) has 1 values for num_heads = 2"),
        ({"position_peaks": (1,)}, "ModelConfig.position_peaks = (1,) has 1 values for num_heads = 2"),
        ({"position_peaks": (1, 2)}, "ModelConfig.position_peaks = (1, 2) needs position_slopes"),
        (
            {"position_peaks": (1, 9), "position_slopes": (1.0, 1.0), "memory_size": 8},
            "ModelConfig.position_peaks = (1, 9) must be from 0 to memory_size = 8",
        ),
        ({"memory_size": -1}, "ModelConfig.memory_size = -1 must be 1 or more"),
        ({"num_layers": "4"}, "ModelConfig.num_layers = '4' is not of type int"),
        ({"num_layers": 2.5}, "ModelConfig.num_layers = 2.5 is not of type int"),
        ({"num_layers": True}, "ModelConfig.num_layers = True is not of type int"),
        ({"dropout": "a"}, "ModelConfig.dropout = 'a' is not of type float, and finite"),
        ({"embedding_std": float("nan")}, "ModelConfig.embedding_std = nan is not of type float, and finite"),
        ({"memory": 3}, "ModelConfig.memory = 3 is not of type str"),
        ({"memory": "layer:²"}, "choose a layer from 0"),
    ],
)
def test_an_invalid_model_is_a_sentence(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ModelConfig(**fields)
    assert sentence in str(raised.value)


def test_numbers_of_another_kind_become_those_of_the_field() -> None:
    config = ModelConfig(num_layers=np.int64(2), num_heads=2.0, shared_kv=0, dropout=0)
    assert [type(value) for value in (config.num_layers, config.num_heads, config.head_dim)] == [int] * 3
    assert (config.shared_kv, type(config.shared_kv), type(config.dropout)) == (False, bool, float)
    assert json.loads(json.dumps(to_dict(config)))["num_layers"] == 2


def test_derived_widths_follow_a_change_and_chosen_ones_stay() -> None:
    assert override(ModelConfig(model_dim=64), {"model_dim": "32"}).ff_dim == 128
    assert override(ModelConfig(model_dim=64), {"num_heads": "4"}).head_dim == 16
    assert override(ModelConfig(model_dim=64, ff_dim=100), {"model_dim": "32"}).ff_dim == 100


@pytest.mark.parametrize("field", ["memory_top", "memory_bottom"])
def test_only_a_weighted_sum_has_weights_that_start_somewhere(field: str) -> None:
    start = {field: 2.0}
    assert getattr(ModelConfig(**start), field) == 2.0
    for other in ({"memory": "top"}, {"core": "transformer"}, {"core": "lstm"}):
        assert getattr(ModelConfig(**start, **other), field) == 0.0


def test_overrides_are_read_by_the_type_of_the_field() -> None:
    changed = override(
        ModelConfig(), {"position_slopes": "2, 0.1", "shared_kv": "false", "dropout": "1e-1", "num_layers": "1e1"}
    )
    assert (changed.position_slopes, changed.shared_kv, changed.dropout) == ((2.0, 0.1), False, 0.1)
    assert changed.num_layers == 10
    assert override(TrainConfig(), {"curriculum": "length=6; length=12,size=4"}).curriculum == (
        "length=6",
        "length=12,size=4",
    )


@pytest.mark.parametrize(
    ("name", "value"), [("num_layers", "two"), ("num_layers", "1.5"), ("num_layers", "inf"), ("shared_kv", "perhaps")]
)
def test_a_value_of_the_wrong_type_is_a_sentence(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"ModelConfig.{name} = '{value}' is not of type"):
        override(ModelConfig(), {name: value})


def test_an_unknown_field_is_answered_by_the_nearest() -> None:
    with pytest.raises(ConfigError, match="ModelConfig has no field 'num_layer'; did you mean 'num_layers'"):
        from_dict(ModelConfig, {"num_layer": 3})
    with pytest.raises(ConfigError, match="did you mean 'memory_size'"):
        preset("random-walk").override({"memory_sise": "3"})
    with pytest.raises(ConfigError, match="no section 'modell'"):
        preset("random-walk").override({"modell.num_layers": "3"})


PRESETS = [(task, scale) for task in TASKS for scale in SCALES if scale != "paper-small"]
NOT_IN_THE_PAPER = [(task, "paper") for task in ("text", "wikitext-2", "multi30k", "pairs", *STATES)] + [
    ("copy", "paper-small")
]


@pytest.mark.parametrize(("task", "scale"), NOT_IN_THE_PAPER)
def test_what_the_paper_has_not_is_a_sentence(task: str, scale: str) -> None:
    with pytest.raises(ConfigError, match=f"{task}"):
        preset(task, scale)


@pytest.mark.parametrize(
    ("task", "scale"), [*sorted(set(PRESETS) - set(NOT_IN_THE_PAPER)), ("wikitext-103", "paper-small")]
)
def test_every_preset_survives_json(task: str, scale: str) -> None:
    run = preset(task, scale, core="transformer", seed=3)
    assert RunConfig.from_dict(json.loads(json.dumps(run.to_dict()))) == run
    assert from_dict(ModelConfig, to_dict(run.model)) == run.model


def test_fields_have_one_meaning_across_sections() -> None:
    """So that `field=value` needs no section."""
    for entry in TASKS.values():
        sections = [set(to_dict(c)) for c in (ModelConfig(), TrainConfig(), entry.task)]
        assert not (sections[0] & sections[1])
        assert not (sections[0] & sections[2])
        assert not (sections[1] & sections[2])


def test_a_run_is_overridden_section_by_section_or_by_bare_names() -> None:
    run = preset("random-walk").override({"model.num_layers": "5", "length": "50", "steps": "7"})
    assert (run.model.num_layers, run.task.length, run.train.steps) == (5, 50, 7)


def test_differences_name_the_field() -> None:
    run = preset("random-walk")
    assert run.differences(run) == []
    assert run.differences(run.override({"num_layers": "3"})) == ["model.num_layers is 2, not 3"]


def test_no_two_purposes_share_a_seed() -> None:
    seeds = [
        derive_seed(s, split, n) for s in range(20) for split in ("train", "validation", "test") for n in range(20)
    ]
    assert len(set(seeds)) == len(seeds)
