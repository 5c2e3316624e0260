"""Plays episodes with a policy, the oracle or chance, and returns their rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from feedback_transformer.environments.world import Environment, Floats, Ints, Trial, World

BATCH = 256
Actor = Callable[[World, Ints], Ints]  # the world and its observations [B, parts] -> actions [B]


class ScoresError(ValueError):
    """No action can be drawn by scores that are not finite numbers."""


def play(environment: Environment, trial: Trial, policy: nn.Module, device: torch.device) -> Floats:
    """The reward of each episode [count], with actions drawn from the policy as in training."""
    random = torch.Generator(device).manual_seed(trial.seed)
    return _play(environment, trial, lambda: PolicyActor(policy, device, random))


def play_oracle(environment: Environment, trial: Trial) -> Floats:
    """The reward of each episode for the oracle, which knows everything: an upper bound."""
    return _play(environment, trial, lambda: lambda world, seen: world.oracle())


def play_randomly(environment: Environment, trial: Trial) -> Floats:
    """The reward of each episode for random actions."""
    random, actions = np.random.default_rng(trial.seed), len(environment.actions)
    return _play(environment, trial, lambda: lambda world, seen: random.integers(actions, size=len(seen)))


def _play(environment: Environment, trial: Trial, make_actor: Callable[[], Actor]) -> Floats:
    """Every episode is the first of its seed, so episodes do not depend on how many copies run at a time."""
    earned = []
    for at in range(0, trial.count, BATCH):
        copies = min(BATCH, trial.count - at)
        world, act = environment.world(copies), make_actor()
        world.seed(trial.seed + at + np.arange(copies))
        world.begin(np.arange(copies))
        total, going = np.zeros(copies), np.ones(copies, dtype=bool)
        while going.any():
            rewards, terminated, truncated = world.act(act(world, world.observe()))
            total += rewards * going
            going &= ~(terminated | truncated)
        earned.append(total)
    return np.concatenate(earned)


class PolicyActor:
    """A policy with its memory and its last action, which it sees beside the observation."""

    def __init__(self, policy: Any, device: torch.device, random: torch.Generator) -> None:
        self.policy, self.device, self.random = policy, device, random
        self.state: Any = None
        self.last: Tensor | None = None

    @torch.no_grad()
    def __call__(self, world: World, seen: Ints) -> Ints:
        observations = torch.from_numpy(seen).to(self.device)
        if self.last is None:
            self.last = self.policy.no_action(len(seen), self.device)
        (logits, _), self.state = self.policy.step(observations, self.last, self.state)
        if not bool(torch.isfinite(logits).all()):
            raise ScoresError("the policy's scores are no longer finite numbers")
        self.last = sample(logits, self.random)
        return self.last.cpu().numpy()


def sample(logits: Tensor, random: torch.Generator | None = None) -> Tensor:
    """Actions drawn from logits [B, A]: [B]."""
    return torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=random).squeeze(1)
