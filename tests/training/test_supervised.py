"""The loop: it learns, follows its curriculum, picks the best weights, and stops when something goes wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from feedback_transformer.config import ConfigError
from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.presets import preset
from feedback_transformer.training import checkpoint, record, supervised
from feedback_transformer.training.learner import Learner
from feedback_transformer.training.loading import load_run
from feedback_transformer.training.progress import Progress
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import DivergedError
from feedback_transformer.training.stream import TrainingStream
from feedback_transformer.training.supervised import Trainer, train
from tests.training.runs import CPU, small_run


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_learns_a_short_walk(core: str, tmp_path: Path) -> None:
    run = small_run(core, steps=150, model_dim=32, batch_size=16, learning_rate=5e-3, length=3, dropout=0.0, size=3)
    record = train(run, tmp_path / "run")
    assert record["finished"]
    assert record["curve"][-1]["loss"] < 0.75 * record["curve"][0]["loss"]
    assert record["test"]["accuracy"] > 0.55


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Learner.forward
    calls = 0

    def broken(self: Learner, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        loss, *others = original(self, *arguments)
        return (loss * float("nan") if calls == 15 else loss), *others

    monkeypatch.setattr(Learner, "forward", broken)
    with pytest.raises(DivergedError, match=r"no longer a finite number at step 15\. The last good checkpoint is kept"):
        train(small_run(), tmp_path / "run")
    tensors, meta = checkpoint.load(tmp_path / "run" / "last.safetensors")
    assert meta["progress"]["step"] == 10
    assert all(torch.isfinite(t).all() for n, t in tensors.items() if n.startswith("model."))


def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path) -> None:
    record = train(small_run(learning_rate=0.0, steps=500, eval_every=1, patience=3), tmp_path / "run")
    assert record["steps"] == 4
    assert record["finished"]


def test_patience_ends_the_main_stage_and_fine_tuning_follows(tmp_path: Path) -> None:
    run = small_run(learning_rate=0.0, steps=500, eval_every=1, patience=3, finetune_steps=5)
    record = train(run, tmp_path / "run")
    assert record["steps"] == 4 + 5
    run = small_run(learning_rate=1e-3, steps=500, eval_every=5, patience=1, finetune_steps=5, warmup_steps=0)
    rates = [point["rate"] for point in train(run, tmp_path / "other")["curve"]]
    assert rates[-1] == pytest.approx(1e-4)
    assert rates[-2] > 5e-4


def test_the_time_that_is_left_is_told_by_the_latest_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update, now = Trainer.update, [0.0]

    def slower_and_slower(self: Trainer) -> None:
        now[0] += 1.0 if self.progress.step < 20 else 9.0
        update(self)

    monkeypatch.setattr(Trainer, "update", slower_and_slower)
    clocks = SimpleNamespace(monotonic=lambda: now[0], process_time=time.process_time)
    monkeypatch.setattr("feedback_transformer.training.supervised.time", clocks)
    told: dict[int, float] = {}
    train(small_run(steps=60, eval_every=10), tmp_path / "run", lambda u: told.update({u.step: u.seconds_left}))
    assert told[15] == pytest.approx(45 * 1.0)
    assert told[55] == pytest.approx(5 * 9.0)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    run = small_run(learning_rate=1e38, warmup_steps=0, eval_every=1)
    with pytest.raises(DivergedError, match="Nothing was saved"):
        train(run, tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("task", "stage"), [("random-walk", "size=10"), ("random-walk", "size=4"), ("algorithmic-3", "num_variables=5")]
)
def test_a_stage_that_changes_the_symbols_is_a_sentence(task: str, stage: str, tmp_path: Path) -> None:
    run = preset(task, "smoke").override({"curriculum": stage})
    with pytest.raises(ConfigError, match="changes the task's symbols"):
        train(run, tmp_path / "run")


def stages_after_updates(run: RunConfig, folder: Path, updates: int) -> list[int]:
    """The stage of the curriculum after each update."""
    trainer, stages = Trainer(run, folder, CPU), []
    for _ in range(updates):
        trainer.update()
        stages.append(trainer.stream.stage)
    return stages


def test_the_curriculum_moves_on_at_its_gate_and_at_its_deadline(tmp_path: Path) -> None:
    easy = small_run(curriculum="length=2;length=4", curriculum_gate=0.0, steps=6)
    assert stages_after_updates(easy, tmp_path / "gate", 4) == [1, 2, 2, 2]
    hard = small_run(curriculum="length=2;length=4", curriculum_gate=1.0, curriculum_deadline=0.5, steps=8)
    assert stages_after_updates(hard, tmp_path / "deadline", 6) == [0, 1, 1, 2, 2, 2]


def test_a_stage_can_have_a_gate_of_its_own(tmp_path: Path) -> None:
    run = small_run(curriculum="length=2,gate=0;length=4", curriculum_gate=1.0, curriculum_deadline=1.0, steps=8)
    assert stages_after_updates(run, tmp_path / "own", 4) == [1, 1, 1, 1]


def test_a_stage_that_is_no_override_names_the_curriculum(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"TrainConfig.curriculum has 'foo'"):
        Trainer(small_run(curriculum="foo"), tmp_path / "run", CPU)


@pytest.mark.parametrize("gate", ["1.5", "soon", "nan"])
def test_a_gate_that_no_accuracy_can_pass_is_a_sentence(gate: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"gate = {gate} must be from 0 to 1"):
        Trainer(small_run(curriculum=f"length=2,gate={gate}"), tmp_path / "run", CPU)


def test_the_test_set_is_scored_with_the_best_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = small_run(steps=40, eval_every=10), [0.5, 0.9, 0.4, 0.3, 0.0, 0.0]
    seen: list[torch.Tensor] = []

    def score(model: torch.nn.Module, *_: Any) -> dict[str, float]:
        seen.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
        return {"accuracy": found[len(seen) - 1]}

    monkeypatch.setattr(supervised, "score", score)
    record = train(run, tmp_path / "run")
    assert record["best"] == {"step": 20, "accuracy": 0.9}
    assert torch.equal(seen[4], seen[1])
    assert not torch.equal(seen[4], seen[3])
    loaded, model = load_run(tmp_path / "run")
    assert loaded == run
    score(model)
    assert torch.equal(seen[5], seen[1])


def test_the_accuracy_that_is_shown_is_a_mean_and_the_one_that_passes_a_stage_starts_at_zero() -> None:
    progress = Progress()
    assert progress.accuracy == 0
    for accuracy in (1.0, 1.0, 0.0):
        progress.see(accuracy)
    assert 0.65 < progress.accuracy < 0.67
    assert progress.running_accuracy < 0.05


def test_the_memory_goes_on_from_block_to_block_and_begins_anew_with_a_pass(tmp_path: Path) -> None:
    run = small_run(learning_rate=0, dropout=0, train_episodes=40, length=5, memory_size=20, bptt=8, steps=12)
    trainer = Trainer(run, tmp_path, CPU)
    for _ in range(12):
        trainer.update()
    stream, passes = TrainingStream(run), []
    for _ in range(12):
        tokens, labels, begins = stream.next_block(8)
        passes += [[]] if begins else []
        passes[-1].append((tokens, labels))
    assert len(passes) > 2
    assert min(map(len, passes[:-1])) > 1
    expected = []
    for blocks in passes:  # each read as a whole, in one go
        logits, _ = trainer.model(torch.cat([tokens for tokens, _ in blocks], dim=1))
        for part, (_, labels) in zip(logits.split(8, dim=1), blocks, strict=True):
            expected.append(cross_entropy(part.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL).item())
    assert trainer.losses == pytest.approx(expected, abs=1e-5)


def test_the_record_names_the_code_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, commits = small_run(), iter(["first", "second", "third"])
    monkeypatch.setattr(record, "commit", lambda: next(commits))
    trainer = Trainer(run, tmp_path, CPU)
    trainer.begin(resume=False)
    trainer.update()
    trainer.save("last")
    trainer.lock.close()
    assert trainer.record(None)["environment"]["commit"] == "first"
    assert train(run, tmp_path, resume=True)["environment"]["commit"] == "first, second"


def test_looking_far_costs_and_a_span_stays_in_its_bounds(tmp_path: Path) -> None:
    fields = {"adaptive_span": True, "memory_size": 64, "dropout": 0, "gradient_clip": 0, "warmup_steps": 0}
    gradients = []
    for cost in (0.0, 0.5):
        trainer = Trainer(small_run(span_loss=cost, **fields), tmp_path / str(cost), CPU)
        trainer.update()
        gradients.append([span.extent.grad.clone() for span in trainer.model.spans()])
        assert all(float(span.extent.detach().min()) >= 0 for span in trainer.model.spans())
    assert len(gradients[0]) == trainer.run.model.num_layers
    for without, with_cost in zip(*gradients, strict=True):
        torch.testing.assert_close(with_cost - without, torch.full_like(without, 0.5 * 64 / len(without)))
    assert all((span.extent == 0).all() for span in trainer.model.spans()), "pushed below zero, and put back"


def test_the_record_holds_what_a_result_depends_on(tmp_path: Path) -> None:
    record = train(small_run(), tmp_path / "run")
    assert record == json.loads((tmp_path / "run" / "record.json").read_text())
    assert {"run", "command", "environment", "parameters", "tokens", "wall_seconds", "test", "curve"} <= set(record)
    assert {"commit", "torch", "processor", "threads", "device"} <= set(record["environment"])
    assert record["tokens"] == 20 * 8 * 8
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_lanes_of_fresh_episodes_are_at_different_phases() -> None:
    run = preset("random-walk", "laptop").override({"batch_size": "8", "curriculum": ""})
    stream = supervised.TrainingStream(run)
    tokens, _, begins = stream.next_block(101)
    assert begins
    resets = (tokens == 0).int().argmax(dim=1)
    assert len(set(resets.tolist())) == 8


def test_a_fixed_data_set_is_read_again_from_another_offset() -> None:
    run = small_run(train_episodes=20, batch_size=2)
    stream = supervised.TrainingStream(run)
    total = 20 * 11
    first, _, _ = stream.next_block(total // 2)
    second, _, begins = stream.next_block(total // 2)
    assert begins
    assert not torch.equal(first, second)
    assert sorted(first.flatten().tolist()) == sorted(second.flatten().tolist())


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_a_string_to_copy_is_read_with_an_empty_memory(core: str, tmp_path: Path) -> None:
    """What a lane has read before changes nothing from the next string on."""
    trainer = Trainer(preset("copy", "smoke", core), tmp_path, CPU)
    begin = trainer.run.task.begin
    tokens = torch.tensor([[1, 2, begin, 3, 4], [7, 8, begin, 3, 4]])
    labels = torch.tensor([[-100, -100, -100, 3, 4]] * 2)
    *_, state = trainer.learner(tokens, labels, None)
    logits, _ = trainer.model.step(torch.tensor([5, 5]), state)
    torch.testing.assert_close(logits[0], logits[1])


def test_every_smoke_preset_trains(tmp_path: Path) -> None:
    from feedback_transformer.tasks import STATES, TOYS

    for name in (*TOYS, *STATES):
        assert train(preset(name, "smoke"), tmp_path / name)["finished"]


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_parts_of_a_batch_give_the_update_of_the_whole(core: str, tmp_path: Path) -> None:
    whole, parts = (Trainer(small_run(core, dropout=0.0, accumulate=n), tmp_path, CPU) for n in (1, 4))
    for _ in range(3):
        whole.update()
        parts.update()
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["random-walk", "algorithmic-3", "copy", "counting-1k"])
def test_the_papers_scale_takes_a_real_step(task: str, tmp_path: Path) -> None:
    run = preset(task, "paper").override({"batch_size": "16", "train_episodes": "200", "validation_episodes": "2"})
    trainer = Trainer(run, tmp_path, CPU)
    trainer.update()
    assert trainer.progress.step == 1
