"""Sampling and generation."""

from __future__ import annotations

import itertools

import pytest
import torch

from feedback_transformer import ConfigError, LanguageModel, ModelConfig
from feedback_transformer.decoding import Sampling, generate

LOGITS = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(), {0, 1, 2, 3}),
        (Sampling(temperature=0), {0}),
        (Sampling(temperature=1e-45), {0}),
        (Sampling(top_k=2), {0, 1}),
        (Sampling(top_k=9), {0, 1, 2, 3}),
        (Sampling(top_p=0.5), {0}),
        (Sampling(top_p=0.6), {0, 1}),
        (Sampling(top_p=0.81), {0, 1, 2}),
        (Sampling(top_k=3, top_p=0.6), {0, 1}),
    ],
)
def test_only_what_is_allowed_is_chosen_and_all_of_it(sampling: Sampling, allowed: set[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    chosen = {int(sampling.choose(LOGITS, generator)) for _ in range(500)}
    assert chosen == allowed


def test_temperature_sharpens_and_flattens() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = LOGITS.expand(20_000, 4)
    share = [(Sampling(t).choose(rows, generator) == 0).double().mean().item() for t in (0.5, 1.0, 2.0)]
    expected = [0.25 / (0.25 + 0.09 + 0.0225 + 0.0025), 0.5, 0.3675]
    assert share == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_greedy_generation_follows_the_block_computed_whole(core: str) -> None:
    model = LanguageModel(ModelConfig(core=core, model_dim=16, memory_size=6), vocab_size=9).eval()
    prompt = torch.randint(9, (3, 200))
    written = torch.stack(list(itertools.islice(generate(model, prompt, Sampling(temperature=0)), 20)), dim=1)
    logits, _ = model(torch.cat([prompt, written], dim=1))
    assert torch.equal(logits[:, 199:-1].argmax(dim=-1), written)


def test_the_same_seed_writes_the_same() -> None:
    model = LanguageModel(ModelConfig(model_dim=16), vocab_size=9).eval()
    runs = []
    for seed in (1, 1, 2):
        stream = generate(model, torch.zeros(2, 1, dtype=torch.long), Sampling(), torch.Generator().manual_seed(seed))
        runs.append(torch.stack(list(itertools.islice(stream, 30))))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize(
    "fields", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}]
)
def test_impossible_sampling_is_a_sentence(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        Sampling(**fields)


def test_an_empty_prompt_is_a_sentence() -> None:
    model = LanguageModel(ModelConfig(model_dim=16), vocab_size=9)
    with pytest.raises(ConfigError, match="at least one token"):
        next(generate(model, torch.zeros(1, 0, dtype=torch.long), Sampling()))
