"""A run that is scored by a running average of its weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from feedback_transformer.training import checkpoint
from feedback_transformer.training.supervised import Trainer, score
from tests.training.test_supervised import CPU, small_run


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def test_a_run_is_scored_by_the_average_of_its_weights(tmp_path: Path) -> None:
    """Average and weights by hand, from every update of the same run without it."""
    run, plain = small_run(ema_decay=0.75), Trainer(small_run(), tmp_path / "plain", CPU)
    mean = weights_of(plain)
    for step in range(6):
        plain.update()
        decay = min(0.75, (step + 1) / (step + 10))
        mean = {name: decay * mean[name] + (1 - decay) * weight for name, weight in weights_of(plain).items()}

    trainer = Trainer(run, tmp_path, CPU)
    trainer.begin(resume=False)
    for _ in range(6):
        trainer.update()
    trainer.evaluate()
    kept, _ = checkpoint.load(tmp_path / "best.safetensors")
    own = weights_of(plain)
    for name, weight in weights_of(trainer).items():
        assert torch.equal(weight, own[name]), "learning goes on from the weights themselves"
        torch.testing.assert_close(kept[f"model.{name}"], mean[name])
    with torch.no_grad():
        for name, weight in plain.model.named_parameters():
            weight.copy_(mean[name])
    assert trainer.scores == score(plain.model, run, plain.validation, CPU)
