"""Observations in, actions and a value out: a core between an embedding and two heads (an actor and a critic)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.config import ConfigError, ModelConfig
from feedback_transformer.model.adaptive_span import AdaptiveSpan
from feedback_transformer.model.cores import STATES, make_core

Decision = tuple[Tensor, Tensor]  # logits of the actions [.., A], value [..]


class Policy(nn.Module):
    """What to do and the value of the current step, from everything seen and done so far.

    An observation is P small numbers, the p-th with `sizes[p]` possible values. Each has its own embeddings, and so has
    the last action, without which its effect could not be known; their sum is the core's input. A policy that is not
    told its actions always reads `no_action`.

    >>> policy = Policy(ModelConfig(model_dim=16), sizes=(5, 3), num_actions=4)
    >>> seen, last = torch.tensor([[4, 0], [1, 2]]), policy.no_action(2)
    >>> (logits, value), state = policy.step(seen, last)
    >>> logits.shape, value.shape
    (torch.Size([2, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        config: ModelConfig,
        sizes: Sequence[int],
        num_actions: int,
        told_actions: bool = True,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1 or num_actions < 1:
            raise ConfigError(f"sizes = {tuple(sizes)} and num_actions = {num_actions} must be 1 or more")
        self.config, self.num_actions, self.told_actions = config, num_actions, told_actions
        self.core = make_core(config, engine)
        sizes = [*sizes, num_actions + 1]
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)
        self.embedding = nn.Parameter(torch.randn(sum(sizes), config.model_dim))
        self.actor = nn.Linear(config.model_dim, num_actions)
        self.critic = nn.Linear(config.model_dim, 1)
        with torch.no_grad():
            self.embedding.mul_(config.embedding_std / math.sqrt(len(sizes)))
            self.actor.weight.mul_(0.1)  # nearly undecided at the start
            self.actor.bias.zero_()

    def no_action(self, batch: int, device: torch.device | str = "cpu") -> Tensor:
        """The last action of agents that have not acted yet: [B]."""
        return torch.full((batch,), self.num_actions, device=device)

    def forward(
        self, seen: Tensor, last: Tensor, state: Any = None, reset: Tensor | None = None
    ) -> tuple[Decision, Any]:
        """A block: seen [B, T, P], last actions [B, T]. Rows where reset [B, T] is true start afresh."""
        y, state = self.core(self._embed(seen, last), state, reset)
        return self._decide(y), state

    def step(self, seen: Tensor, last: Tensor, state: Any = None) -> tuple[Decision, Any]:
        """One step: seen [B, P], last actions [B]."""
        y, state = self.core.step(self._embed(seen, last), state)  # type: ignore[operator]
        return self._decide(y), state

    def _embed(self, seen: Tensor, last: Tensor) -> Tensor:
        offsets: Tensor = self.offsets  # type: ignore[assignment]
        sizes: Tensor = self.sizes  # type: ignore[assignment]
        if not self.told_actions:
            last = torch.full_like(last, self.num_actions)
        parts = torch.cat([seen, last.unsqueeze(-1)], dim=-1)  # [.., P + 1]
        if parts.device.type == "cpu" and bool(((parts < 0) | (parts >= sizes)).any()):
            raise ConfigError(
                f"an observation or a last action is out of range: parts have 0 to {(sizes - 1).tolist()}, the last "
                "part being the action"
            )
        x = F.embedding_bag((parts + offsets).flatten(0, -2), self.embedding, mode="sum")
        return x.view(*parts.shape[:-1], -1)

    def _decide(self, y: Tensor) -> Decision:
        return self.actor(y), self.critic(y).squeeze(-1)

    def spans(self) -> list[AdaptiveSpan]:
        """The adaptive spans of all layers, whose penalty is added to the training loss."""
        return [module for module in self.modules() if isinstance(module, AdaptiveSpan)]

    def state_from_tensors(self, tensors: dict[str, Tensor]) -> Any:
        """The state whose `tensors()` these are."""
        return STATES[self.config.core].from_tensors(tensors)
