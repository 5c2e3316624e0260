"""Targets for sources, many at a time: beam search (one beam is greedy) and sampling, with `step` and `reorder`.

    hypotheses = beam_search(model.read(source), limits, Search(beam=5, length_penalty=0.6))
    hypotheses[0][0].tokens                                  # the best target of the first source

A hypothesis is finished when its end is among the `beam` best continuations of its sentence. A sentence is finished
when it has `beam` finished hypotheses or none left to continue. The score that ranks them is

    log p(target, end) / (tokens + 1) ^ length_penalty
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from feedback_transformer.config import ConfigError
from feedback_transformer.decoding.sampling import Sampling
from feedback_transformer.model.encoder_decoder import BEGIN, END, PAD

NEVER = float("-inf")


class Stepper(Protocol):
    """What the search needs: logits of the next token, and sources whose rows can be reordered."""

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]: ...

    def reorder(self, index: Tensor) -> Stepper: ...


class Hypothesis(NamedTuple):
    """A finished target; the end is not among its tokens but counts in its score."""

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class Search:
    """The settings of a search."""

    beam: int = 5  # hypotheses kept in parallel; 1 is greedy
    length_penalty: float = 1.0  # 0 favours short targets, 1 ranks by the mean over tokens, more favours long ones
    block_ngrams: int = 0  # no sequence of this many tokens is repeated; 0 allows repeats
    min_length: int = 0  # tokens in the shortest target
    length_ratio: float = 1.0  # a target ends after length_ratio * source + extra_length tokens at the latest
    extra_length: int = 50

    def __post_init__(self) -> None:
        for name, least in (("beam", 1), ("block_ngrams", 0), ("min_length", 0), ("length_ratio", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} = {getattr(self, name)} must be {least} or more")
        for name, most in (("length_penalty", 100), ("length_ratio", 1000)):  # far from where numbers overflow
            if abs(getattr(self, name)) > most:
                raise ConfigError(f"{name} = {getattr(self, name)} must be {most} or less")
        if not self.length_ratio and self.extra_length < 1:
            raise ConfigError(f"extra_length = {self.extra_length} must be 1 or more where length_ratio is 0")

    def limits(self, lengths: Tensor) -> Tensor:
        """Source lengths [B] -> how many tokens their targets may have [B]"""
        return (self.length_ratio * lengths + self.extra_length).long().clamp(min=1)


@torch.no_grad()
def beam_search(stepper: Stepper, limits: Tensor, search: Search) -> list[list[Hypothesis]]:
    """The finished hypotheses of each of B sources, the best first; limits [B] are the longest target lengths."""
    found: list[list[Hypothesis]] = [[] for _ in limits]
    alive = torch.arange(len(limits), device=limits.device)  # the sentences that are not done
    totals = torch.zeros(len(limits), 1, device=limits.device)  # [sentences, beams], log-probabilities
    tokens = torch.full((len(limits), 1), BEGIN, device=limits.device)  # [sentences * beams, written]
    state = None
    while len(alive):
        beams, length = totals.shape[1], tokens.shape[1]
        logits, state = stepper.step(tokens[:, -1], state)
        scores = constrain(logits.log_softmax(dim=-1), tokens[:, 1:], limits.repeat_interleave(beams), search)
        best, origin, token = _best_continuations(totals, scores, 2 * search.beam)
        ends = token == END
        for row, rank in (ends & best.isfinite())[:, : search.beam].nonzero().tolist():
            target = tokens[row * beams + int(origin[row, rank]), 1:].tolist()
            score = float(best[row, rank]) / length**search.length_penalty
            found[int(alive[row])].append(Hypothesis(target, score))
        totals, chosen = best.masked_fill(ends, NEVER).topk(min(search.beam, best.shape[1]), dim=1)
        goes_on = totals.isfinite().any(dim=1) & torch.tensor(
            [len(found[sentence]) < search.beam for sentence in alive.tolist()], device=limits.device
        )
        (left,) = goes_on.nonzero(as_tuple=True)
        rows = (left[:, None] * beams + origin[left].gather(1, chosen[left])).flatten()
        tokens = torch.cat([tokens[rows], token[left].gather(1, chosen[left]).view(-1, 1)], dim=1)
        totals, state = totals[left], state.reorder(rows)
        if len(left) < len(alive):
            alive, limits, stepper = alive[left], limits[left], stepper.reorder(left)
    return [sorted(some, key=lambda hypothesis: -hypothesis.score) for some in found]


def _best_continuations(totals: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """totals [n, beams], scores [n * beams, V] -> log-probability, beam and token of the best [n, count]"""
    each, tokens = scores.topk(min(count, scores.shape[1]), dim=1)  # the best overall are among the best of each beam
    every = (totals.flatten()[:, None] + each).view(len(totals), -1)
    best, index = every.topk(min(count, every.shape[1]), dim=1)
    return best, index // each.shape[1], tokens.view(len(totals), -1).gather(1, index)


@torch.no_grad()
def sample(
    stepper: Stepper, limits: Tensor, search: Search, sampling: Sampling, generator: torch.Generator | None = None
) -> list[Hypothesis]:
    """One target for each of B sources, sampled token by token; their scores are log-probabilities."""
    tokens = torch.full((len(limits), 1), BEGIN, device=limits.device)
    ended = torch.zeros(len(limits), dtype=torch.bool, device=limits.device)
    totals, state = torch.zeros(len(limits), device=limits.device), None
    while not ended.all():
        logits, state = stepper.step(tokens[:, -1], state)
        scores = constrain(logits.log_softmax(dim=-1), tokens[:, 1:], limits, search)
        token = torch.where(ended, END, sampling.choose(scores, generator))
        totals = totals + scores.gather(1, token[:, None]).squeeze(1).masked_fill(ended, 0)
        tokens, ended = torch.cat([tokens, token[:, None]], dim=1), ended | (token == END)
    rows = tokens[:, 1:].tolist()
    return [Hypothesis(row[: row.index(END)], total) for row, total in zip(rows, totals.tolist(), strict=True)]


def constrain(scores: Tensor, written: Tensor, limits: Tensor, search: Search) -> Tensor:
    """scores [R, V] after written [R, n]: set to minus infinity for what may not come next; something always may.

    In place, and only where something changes, because vocabularies are large.
    """
    scores[:, [PAD, BEGIN]] = NEVER
    end = scores[:, END].clone()
    if search.block_ngrams and written.shape[1] >= search.block_ngrams:
        scores.scatter_(1, _would_repeat(written, search.block_ngrams), NEVER)
    if written.shape[1] < search.min_length:
        scores[:, END] = NEVER
    if (over := written.shape[1] >= limits).any():
        scores[over] = NEVER
    nothing_else = scores.amax(dim=1) == NEVER
    scores[:, END] = torch.where(nothing_else, end, scores[:, END])
    return scores


def _would_repeat(written: Tensor, size: int) -> Tensor:
    """Tokens [R, n] that would repeat a sequence of `size` tokens written before, PAD where there is none."""
    ngrams = written.unfold(1, size, 1)  # [R, n - size + 1, size]
    begun = written[:, written.shape[1] - size + 1 :]
    same = (ngrams[..., :-1] == begun[:, None]).all(dim=-1)
    return torch.where(same, ngrams[..., -1], PAD)
