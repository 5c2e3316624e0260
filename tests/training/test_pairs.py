"""The one loop on pairs: resumes to the bit, shares batches, averages checkpoints."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from feedback_transformer import ConfigError, ModelConfig, TrainConfig
from feedback_transformer.config import override
from feedback_transformer.model.encoder_decoder import EncoderDecoder
from feedback_transformer.model.language_model import NO_LABEL
from feedback_transformer.presets import preset
from feedback_transformer.training import checkpoint
from feedback_transformer.training.averaging import average, kept_checkpoints
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.learner import PairLearner
from feedback_transformer.training.loading import load_run
from feedback_transformer.training.optimizer import rate_at
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError
from feedback_transformer.training.supervised import Trainer, train
from tests.training.runs import assert_same

CPU = torch.device("cpu")


def small_run(**overrides: Any) -> RunConfig:
    fields: dict[str, Any] = {"length": 3, "test_length": 3, "steps": 6, "eval_every": 2, "batch_tokens": 64}
    fields |= {"num_layers": 1, "encoder_layers": 1, "dropout": 0.1, "keep_checkpoints": 2, "label_smoothing": 0.1}
    fields |= overrides
    return preset("copy-pairs", "smoke").override({name: str(value) for name, value in fields.items()})


def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(layer_drop=0.2)
    train(run, tmp_path / "whole")
    update = Trainer.update

    def interrupted(self: Trainer) -> None:
        update(self)
        if self.progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", interrupted)
        with pytest.raises(StoppedError):
            train(run, tmp_path / "cut")
    torch.manual_seed(99)
    train(run, tmp_path / "cut", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "cut")
    assert [path.name for path in kept_checkpoints(tmp_path / "cut")] == [
        "step-00000004.safetensors",
        "step-00000006.safetensors",
    ]


def test_the_average_is_the_mean_of_the_last_checkpoints_and_loads(tmp_path: Path) -> None:
    train(small_run(), tmp_path / "run")
    used = average(tmp_path / "run", 2, tmp_path / "run" / "average.safetensors")
    first, second = (checkpoint.load(path)[0] for path in used)
    mean, _ = checkpoint.load(tmp_path / "run" / "average.safetensors")
    for name in first:
        torch.testing.assert_close(mean[name], (first[name].double() + second[name].double()).div(2).float())
    assert any(not torch.equal(first[name], second[name]) for name in first)
    _, model = load_run(tmp_path / "run" / "average.safetensors")
    assert isinstance(model, EncoderDecoder)
    with pytest.raises(CheckpointError, match="keeps 2 checkpoints of evaluations, not 3"):
        average(tmp_path / "run", 3, tmp_path / "x")


def test_parts_of_a_batch_have_the_gradient_of_the_whole(tmp_path: Path) -> None:
    losses = []
    for accumulate in (1, 3, 99):  # more than a batch has rows
        fields = {"accumulate": accumulate, **({"batch_size": 99} if accumulate > 1 else {})}  # which it has to divide
        trainer = Trainer(small_run(dropout=0, embedding_dropout=0, **fields), tmp_path, CPU)
        trainer.update()
        trainer.update()
        losses.append(trainer.losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)


def test_padding_does_not_enter_the_loss_and_smoothing_does() -> None:
    model = EncoderDecoder(ModelConfig(encoder_layers=1, model_dim=8), 9).double()
    source, read, labels = torch.tensor([[4, 2]]), torch.tensor([[1, 5, 6]]), torch.tensor([[5, 6, 2]])
    padded = torch.tensor([[5, 6, 2, NO_LABEL]])
    loss, _, right, state = PairLearner(model)(source, read, labels, None)
    behind, _, also, _ = PairLearner(model)(source, torch.tensor([[1, 5, 6, 0]]), padded, None)
    assert state is None
    assert (loss.item(), right) == (pytest.approx(behind.item()), also)
    scores = model(source, read).log_softmax(dim=-1)
    smooth = -0.9 * scores.gather(2, labels[..., None]).sum() - 0.1 * scores.mean(dim=-1).sum()
    assert PairLearner(model, 0.1)(source, read, labels, None)[0].item() == pytest.approx(smooth.item())


def test_the_rate_falls_with_the_root_of_the_steps() -> None:
    config = override(TrainConfig(steps=1000, warmup_steps=100, learning_rate=1.0), {"schedule": "inverse-sqrt"})
    assert [rate_at(step, config) for step in (49, 99, 399)] == pytest.approx([0.5, 1.0, 0.5])


def test_a_model_that_does_not_fit_the_task_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="core = 'lstm' cannot read a source"):
        Trainer(small_run(core="lstm"), tmp_path, CPU)
    with pytest.raises(ConfigError, match="encoder_layers = 0 must be 1 or more"):
        Trainer(small_run(encoder_layers=0), tmp_path, CPU)
    with pytest.raises(ConfigError, match="there is no source to read"):
        Trainer(preset("copy", "smoke").override({"encoder_layers": "2"}), tmp_path, CPU)
