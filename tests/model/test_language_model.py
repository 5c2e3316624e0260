"""Tokens to logits."""

from __future__ import annotations

import pytest
import torch

from feedback_transformer import ConfigError, LanguageModel, ModelConfig

CORES = ["feedback", "transformer", "lstm"]


@pytest.mark.parametrize("core", CORES)
def test_steps_equal_a_block(device: torch.device, core: str) -> None:
    model = LanguageModel(ModelConfig(core=core, model_dim=16), vocab_size=7, output_size=3).to(device).eval()
    tokens = torch.randint(7, (2, 9), device=device)
    block, _ = model(tokens)
    state, steps = None, []
    for t in range(9):
        logits, state = model.step(tokens[:, t], state)
        steps.append(logits)
    assert block.shape == (2, 9, 3)
    torch.testing.assert_close(torch.stack(steps, dim=1), block)


@pytest.mark.parametrize("core", CORES)
def test_learns_to_repeat_the_token_before(device: torch.device, core: str) -> None:
    model = LanguageModel(ModelConfig(core=core, model_dim=32, memory_size=8, embedding_std=0.5), vocab_size=5)
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        tokens = torch.randint(5, (16, 8), device=device)
        logits, _ = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3


def test_tied_weights_are_one_tensor() -> None:
    config = ModelConfig(model_dim=16, tie_weights=True)
    model = LanguageModel(config, vocab_size=7)
    assert model.head.weight is model.embedding.weight
    with pytest.raises(ConfigError, match="output_size = 3 and vocab_size = 7"):
        LanguageModel(config, vocab_size=7, output_size=3)


@pytest.mark.parametrize("token", [-1, 7])
def test_a_token_out_of_range_is_a_sentence(token: int) -> None:
    model = LanguageModel(ModelConfig(model_dim=16), vocab_size=7)
    with pytest.raises(ValueError, match=f"token {token} is out of range: the vocabulary has 7 symbols"):
        model(torch.tensor([[0, token]]))


def test_embedding_and_output_dropout_act_in_training_only() -> None:
    for field in ("embedding_dropout", "output_dropout"):
        model = LanguageModel(ModelConfig(model_dim=16, **{field: 0.5}), vocab_size=7)
        tokens = torch.randint(7, (2, 5))
        assert not torch.equal(model(tokens)[0], model(tokens)[0])
        model.eval()
        assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_a_language_model_can_be_exported() -> None:
    model, tokens = (
        LanguageModel(ModelConfig(num_layers=1, model_dim=8, num_heads=1, memory_size=4), 7),
        torch.ones(2, 3),
    )

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(tokens)[0]

    program = torch.export.export(Logits(), (tokens.long(),), strict=False)
    torch.testing.assert_close(program.module()(tokens.long()), model(tokens.long())[0])
