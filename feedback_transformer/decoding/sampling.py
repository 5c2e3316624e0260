"""Generation, one token after the other, each chosen from the model's distribution, with `step`.

    for token in generate(model, prompt, Sampling(temperature=0.8, top_k=40), generator=torch.Generator()): ...

The state is no larger after a million tokens than after `memory_size`, so generation never has to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from feedback_transformer.config import ConfigError

BLOCK = 128  # steps per block when a prompt is read or a model scored; affects only the memory needed
COLD = 1e-6  # below this temperature the likeliest token is always chosen


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 1.0  # 0: always the likeliest
    top_k: int = 0  # choose among the k likeliest; 0: among all
    top_p: float = 1.0  # choose among the likeliest that together have this probability

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature = {self.temperature} must be 0 or more, and finite")
        if self.top_k < 0:
            raise ConfigError(f"top_k = {self.top_k} must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p = {self.top_p} must be above 0 and at most 1")

    def choose(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """logits [B, V] -> tokens [B]"""
        if self.temperature < COLD:
            return logits.argmax(dim=-1)
        probabilities = torch.softmax(self.restrict(logits / self.temperature), dim=-1)
        return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)

    def restrict(self, logits: Tensor) -> Tensor:
        """The logits, minus infinity for every token that top_k and top_p exclude."""
        if 0 < self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < least, float("-inf"))
        if self.top_p < 1:
            ordered, index = logits.sort(dim=-1, descending=True)
            before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
            ruled_out = torch.zeros_like(before, dtype=torch.bool).scatter(-1, index, before >= self.top_p)
            logits = logits.masked_fill(ruled_out, float("-inf"))
        return logits


@torch.no_grad()
def generate(
    model: nn.Module, prompt: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Iterator[Tensor]:
    """Tokens [B], one after the other and endlessly, that continue prompts [B, n].

    The model is used as it is: one in training mode (`model.train()`) drops out.
    """
    if prompt.ndim != 2 or not prompt.shape[1]:
        raise ConfigError(f"prompts must be [B, n] with at least one token; they are {list(prompt.shape)}")
    logits, state = None, None
    for block in torch.split(prompt, BLOCK, dim=1):
        logits, state = model(block, state)
    assert logits is not None
    logits = logits[:, -1]
    while True:
        token = sampling.choose(logits, generator)
        yield token
        with torch.no_grad():  # the caller's setting applies between two tokens
            logits, state = model.step(token, state)  # type: ignore[operator]


CONTEXT = 32  # tokens before a new one that its text may depend on: a space between words, the bytes of a character


def text_pieces(decode: Callable[[Sequence[int]], str], prompt: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
    """The text of a prompt, then of each token as soon as characters are complete, at constant cost per token."""
    yield decode(prompt)
    shown, waiting = list(prompt[-CONTEXT:]), []
    for token in tokens:
        waiting.append(token)
        before, after = decode(shown), decode(shown + waiting)
        if after.startswith(before) and not after.endswith("\N{REPLACEMENT CHARACTER}"):
            yield after[len(before) :]
            shown, waiting = (shown + waiting)[-CONTEXT:], []
    if waiting:
        yield decode(shown + waiting)[len(decode(shown)) :]
