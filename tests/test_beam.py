"""Beam search against an exhaustive one, greedy, constraints and batches."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from feedback_transformer import ConfigError, ModelConfig
from feedback_transformer.decoding import Sampling, Search, beam_search, sample
from feedback_transformer.model.encoder_decoder import BEGIN, END, PAD, EncoderDecoder
from tests.model.cores import randomize

SYMBOLS = (3, 4, 5)


def make_model(device: torch.device, core: str = "feedback", vocab_size: int = 6) -> EncoderDecoder:
    config = ModelConfig(core=core, encoder_layers=1, num_layers=2, model_dim=8, memory_size=8)
    model = EncoderDecoder(config, vocab_size).double().to(device)
    randomize(model)
    return model.eval()


def exhaustive(
    model: EncoderDecoder, source: Tensor, least: int, most: int, penalty: float
) -> list[tuple[list[int], float]]:
    """Every target there is, the best first."""
    scored: list[tuple[list[int], float]] = []
    for length in range(least, most + 1):
        targets = [list(target) for target in itertools.product(SYMBOLS, repeat=length)]
        tokens = torch.tensor([[BEGIN, *target] for target in targets], device=source.device)
        wanted = torch.tensor([[*target, END] for target in targets], device=source.device)
        scores = model(source.expand(len(targets), -1), tokens).log_softmax(dim=-1)
        totals = scores.gather(2, wanted[..., None]).sum(dim=(1, 2)) / (length + 1) ** penalty
        scored += zip(targets, totals.tolist(), strict=True)
    return sorted(scored, key=lambda pair: -pair[1])


@pytest.mark.parametrize("core", ["feedback", "transformer"])
@pytest.mark.parametrize(("least", "penalty"), [(0, 0.0), (0, 1.0), (2, 0.6)])
@torch.no_grad()
def test_a_beam_as_wide_as_the_space_finds_what_an_exhaustive_search_finds(
    core: str, least: int, penalty: float, device: torch.device
) -> None:
    model = make_model(device, core)
    sources = torch.tensor([[3, 4, 5, END], [5, 3, END, PAD]], device=device)
    limits = torch.tensor([3, 4], device=device)
    search = Search(beam=1 + 3 + 9 + 27 + 81, length_penalty=penalty, min_length=least)
    for row, found in enumerate(beam_search(model.read(sources), limits, search)):
        alone = sources[row : row + 1, : 4 - row]
        expected = exhaustive(model, alone, least, int(limits[row]), penalty)
        assert [hypothesis.tokens for hypothesis in found] == [target for target, _ in expected]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], rel=1e-5)


@pytest.mark.parametrize("core", ["feedback", "transformer"])
@torch.no_grad()
def test_one_beam_is_greedy(core: str, device: torch.device) -> None:
    model = make_model(device, core, vocab_size=11)
    sources = torch.randint(END + 1, 11, (5, 6), device=device)
    found = beam_search(model.read(sources), torch.full((5,), 12, device=device), Search(beam=1))
    for row, (best, *others) in enumerate(found):
        assert not others
        tokens = [BEGIN]
        while len(tokens) <= 12:
            logits = model(sources[row : row + 1], torch.tensor([tokens], device=device))[0, -1]
            logits[[PAD, BEGIN]] = -torch.inf
            if int(logits.argmax()) == END:
                break
            tokens.append(int(logits.argmax()))
        assert best.tokens == tokens[1:]


@torch.no_grad()
def test_sentences_searched_together_and_alone_give_the_same(device: torch.device) -> None:
    model = make_model(device, vocab_size=11)
    sources = torch.randint(END + 1, 11, (4, 6), device=device)
    limits, search = torch.tensor([9, 3, 12, 6], device=device), Search(beam=4, length_penalty=0.6)
    together = beam_search(model.read(sources), limits, search)
    for row in range(4):
        (alone,) = beam_search(model.read(sources[row : row + 1]), limits[row : row + 1], search)
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]])


class Fixed:
    """A stepper that always expects the same, with a state that is only its rows."""

    def __init__(self, probabilities: list[float]) -> None:
        self.logits = torch.tensor(probabilities).log()

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return self.logits.expand(len(tokens), -1), self

    def reorder(self, index: Tensor) -> Fixed:
        return self


ENDS_AT_ONCE = Fixed([0.05, 0.05, 0.5, 0.3, 0.07, 0.03])
NEVER_ENDS = Fixed([0.0, 0.0, 1e-9, 0.6, 0.3, 0.1])


def only(stepper: Fixed, limit: int, **fields: Any) -> list[int]:
    return beam_search(stepper, torch.tensor([limit]), Search(**fields))[0][0].tokens


@pytest.mark.parametrize("beam", [1, 3])
def test_lengths_are_kept(beam: int) -> None:
    assert only(ENDS_AT_ONCE, 9, beam=beam) == []
    assert only(ENDS_AT_ONCE, 9, beam=beam, min_length=4) == [3] * 4
    assert only(NEVER_ENDS, 7, beam=beam) == [3] * 7
    assert only(ENDS_AT_ONCE, 2, beam=beam, min_length=4) == [3] * 2, "the limit wins"


def test_no_sequence_of_blocked_length_comes_twice() -> None:
    for size in (1, 2, 3):
        for beam in (1, 4):
            tokens = only(NEVER_ENDS, 12, beam=beam, block_ngrams=size)
            ngrams = list(zip(*(tokens[i:] for i in range(size)), strict=False))
            assert len(set(ngrams)) == len(ngrams)
    assert len(only(NEVER_ENDS, 12, beam=1, block_ngrams=1)) == 3, "when all is used up, it ends"
    assert len(only(NEVER_ENDS, 12, beam=1, block_ngrams=1, min_length=9)) == 3


def test_a_length_penalty_above_one_favours_longer_targets() -> None:
    lengths = [len(only(ENDS_AT_ONCE, 9, beam=5, length_penalty=penalty)) for penalty in (0.0, 1.0, 3.0)]
    assert lengths[0] == 0
    assert lengths[2] > lengths[0]


@torch.no_grad()
def test_samples_follow_the_model_and_their_seed(device: torch.device) -> None:
    stepper, limits = ENDS_AT_ONCE, torch.full((4000,), 9)
    drawn = sample(stepper, limits, Search(), Sampling(), torch.Generator().manual_seed(0))
    again = sample(stepper, limits, Search(), Sampling(), torch.Generator().manual_seed(0))
    assert drawn == again
    empty = sum(not hypothesis.tokens for hypothesis in drawn) / len(drawn)
    assert empty == pytest.approx(0.5 / 0.9, abs=0.03)
    assert all(len(h.tokens) <= 9 and not {PAD, BEGIN, END} & set(h.tokens) for h in drawn)
    greedy = sample(stepper, limits[:1], Search(min_length=2), Sampling(temperature=0))
    assert greedy[0].tokens == [3, 3]


def test_limits_follow_the_source() -> None:
    lengths = torch.tensor([1, 10])
    assert Search(length_ratio=1.5, extra_length=4).limits(lengths).tolist() == [5, 19]
    assert Search(length_ratio=0, extra_length=7).limits(lengths).tolist() == [7, 7]


@pytest.mark.parametrize(
    "fields",
    [{"beam": 0}, {"block_ngrams": -1}, {"length_ratio": -0.5}, {"length_ratio": 1e30}, {"length_penalty": 400.0}],
)
def test_an_impossible_search_is_a_sentence(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(fields))} = .* must be"):
        Search(**fields)
    with pytest.raises(ConfigError, match="extra_length = 0 must be 1 or more"):
        Search(length_ratio=0, extra_length=0)
