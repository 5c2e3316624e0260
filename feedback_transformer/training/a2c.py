"""A2C (advantage actor-critic), to be read from top to bottom: act, compute returns, replay, learn.

The policy acts in B copies of an environment in parallel, T steps at a time:

    act      observe, draw an action, and so on, step by step without gradients
    returns  R_t = r_t + discount * R_{t+1}; 0 beyond an episode's end, the policy's own value beyond the block
    replay   the same block again, as a whole and with gradients: a core's `forward` equals T times its `step`
    learn    loss = - advantage * log p(action) + value_cost * advantage^2 / 2 - entropy_cost * entropy

Replaying is fast for every core: single steps are cheap without gradients, and a block with gradients is what the
engines are made for. Where an episode ends inside a block, the memory is emptied before the next step, both when acting
and in the replay. Everything around an update (folder, checkpoints, evaluation, record) is the supervised loop's.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from feedback_transformer.config import ActConfig, ConfigError
from feedback_transformer.environments.gym import BatchedEnv
from feedback_transformer.environments.play import ScoresError, play_oracle, play_randomly, sample
from feedback_transformer.environments.world import Environment, Trial
from feedback_transformer.training import checkpoint
from feedback_transformer.training.learner import span_penalty
from feedback_transformer.training.optimizer import bptt_at
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stream import stages
from feedback_transformer.training.supervised import Trainer

BOUND_EPISODES = 256  # on which the oracle and chance are measured


class Block(NamedTuple):
    """What happened in T steps of B copies, [B, T] each."""

    seen: Tensor  # [B, T, parts]
    last: Tensor  # the action before
    fresh: Tensor  # an episode begins with this step
    actions: Tensor
    rewards: Tensor
    ended: Tensor  # an episode ended with this step
    bootstrap: Tensor  # [B] the value of what comes after the block


class Actors:
    """B copies of the environment, and what the policy is given at the next step."""

    def __init__(self, run: RunConfig) -> None:
        assert isinstance(run.train, ActConfig)
        self.run, self.staggered = run, run.train.stagger
        self.stages = stages(run.task, run.train)  # environments, easier ones first
        self.begin(stage=0)

    def begin(self, stage: int) -> None:
        """New copies of this stage's environment."""
        copies, environment = self.run.train.batch_size, self.stages[stage].task
        self.stage = stage
        self.environment: Environment = environment
        self.envs = BatchedEnv(environment, copies)
        seed = np.random.SeedSequence([self.run.seed, stage]).generate_state(1, np.uint64)[0] >> np.uint64(2)
        self.seen = torch.from_numpy(self.envs.reset(seed=int(seed))[0])
        self.last = torch.full((copies,), len(environment.actions))
        self.fresh = torch.ones(copies, dtype=torch.bool)
        first_block = np.random.default_rng([self.run.seed, stage]).integers(1, self.run.train.bptt + 1, copies)
        self.until_anew = torch.from_numpy(first_block)  # steps after which a copy begins anew if they are staggered
        self.earned = torch.zeros(copies, dtype=torch.float64)  # in the episode so far
        self.finished = torch.zeros(2, dtype=torch.float64)  # since the last evaluation: reward in all, episodes

    def act(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step of all copies: rewards, which episodes ended, and the total reward of those."""
        seen, rewards, terminated, truncated, _ = self.envs.step(actions.numpy())
        ended = torch.from_numpy(terminated | truncated)
        reward = torch.from_numpy(rewards)
        self.earned += reward
        done = None
        if ended.any():
            done = self.earned[ended]
            self.finished += torch.tensor([done.sum(), len(done)])
            self.earned[ended] = 0
        self.until_anew -= 1
        if self.staggered and (anew := (self.until_anew == 0) & ~ended).any():
            self.envs.world.begin(anew.nonzero()[:, 0].numpy())
            seen, ended = self.envs.world.observe(), ended | anew
            self.earned[anew] = 0
        self.seen, self.fresh = torch.from_numpy(seen), ended
        self.last = actions.masked_fill(ended, len(self.environment.actions))
        return reward.float(), ended, done

    @property
    def kept(self) -> list[str]:
        """What of these is saved."""
        return ["seen", "last", "fresh", "earned", "finished", *(["until_anew"] if self.staggered else [])]

    @property
    def last_stage(self) -> bool:
        return self.stage == len(self.stages) - 1

    def advance_stage(self) -> None:
        self.begin(self.stage + 1)

    def position(self) -> dict[str, int]:
        return {"stage": self.stage}

    def seek(self, position: dict[str, int]) -> None:
        self.begin(position["stage"])

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed run needs from the copies."""
        own = {name: getattr(self, name) for name in self.kept}
        return own | checkpoint.with_prefix("world", self.envs.world.tensors())

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.envs.world.load(checkpoint.without_prefix("world", tensors))
        for name in self.kept:
            setattr(self, name, tensors[name])


def advantages(
    rewards: Tensor, ended: Tensor, values: Tensor, bootstrap: Tensor, discount: float, trace: float
) -> Tensor:
    """Advantages [B, T]: returns minus values, or with a trace below 1 a mix of shorter returns (generalised advantage
    estimation). Beyond an episode's end the return is 0, beyond the block it is `bootstrap` [B]."""
    going = (~ended).to(rewards.dtype)
    following = torch.cat([values[:, 1:], bootstrap[:, None]], dim=1)
    surprise = rewards + discount * going * following - values
    advantage, found = torch.zeros_like(bootstrap), []
    for t in reversed(range(rewards.shape[1])):
        advantage = surprise[:, t] + discount * trace * going[:, t] * advantage
        found.append(advantage)
    return torch.stack(found[::-1], dim=1)


class ActorCritic(Trainer):
    """A run of A2C in progress."""

    unit = "frames"

    def __init__(self, run: RunConfig, folder: Path, device: torch.device, command: str | None = None) -> None:
        assert isinstance(run.train, ActConfig)
        for name in ("dropout", "embedding_dropout", "output_dropout", "layer_drop"):
            if value := getattr(run.model, name):
                raise ConfigError(
                    f"ModelConfig.{name} = {value} does not work with A2C, which would then learn from another policy "
                    "than acted; set it to 0"
                )
        super().__init__(run, folder, device, command)
        if self.team.size > 1:
            raise ConfigError("A2C runs in one process; start it without torchrun")
        assert isinstance(run.task, Environment)
        self.settings, self.task = run.train, run.task
        self.measure = self.task.metric

    @cached_property
    def bounds(self) -> dict[str, float]:
        """The scores of the oracle and of chance."""
        trial, ways = Trial(BOUND_EPISODES, self.run.seed), {"oracle": play_oracle, "chance": play_randomly}
        return {name: float(self.task.measure(way(self.task, trial)).mean()) for name, way in ways.items()}

    def make_stream(self) -> Actors:
        return Actors(self.run)

    # ---------------------------------------------------------------- one update

    def update(self) -> None:
        """Act for a block, replay it with gradients, update the weights. The memory is carried on without gradients."""
        stage = self.stream.stage
        episodes: list[Tensor] = []  # what those that ended have earned
        block = self.act(bptt_at(self.progress.step, self.run.train), episodes)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(block)
        torch.autograd.backward(loss)
        self._descend(loss.item())
        earned = self.task.measure(torch.cat(episodes).numpy()).mean() if episodes else None
        self._count(block.actions.numel(), loss.item(), earned)
        if self.stream.stage != stage:
            self.memories[0] = None

    @torch.no_grad()
    def act(self, steps: int, episodes: list[Tensor]) -> Block:
        """A block of steps; the total reward of episodes that end in it is added to `episodes`."""
        actors: Actors = self.stream
        state, rows = self.memories[0], []
        for _ in range(steps):
            (logits, _), state = self._step(state)
            self._refuse_nonsense(float(logits.sum()))
            actions = sample(logits).cpu()
            before = (actors.seen, actors.last, actors.fresh)
            rewards, ended, done = actors.act(actions)
            rows.append((*before, actions, rewards, ended))
            if done is not None:
                episodes.append(done)
        (_, bootstrap), _ = self._step(state)
        columns = [torch.stack(column, dim=1).to(self.device) for column in zip(*rows, strict=True)]
        return Block._make([*columns, bootstrap])

    def _step(self, state: Any) -> tuple[Any, Any]:
        """The policy's decision for the current observations; new episodes start with an empty memory."""
        actors: Actors = self.stream
        if state is not None and actors.fresh.any():
            state = state.reset(actors.fresh.to(self.device))
        return self.model.step(actors.seen.to(self.device), actors.last.to(self.device), state)

    def loss(self, block: Block) -> Tensor:
        """The loss of the block, replayed with gradients; the memory is carried on."""
        start, reset, settings = self.memories[0], block.fresh, self.settings
        if start is not None:
            start = start.reset(reset[:, 0])
        inside = reset[:, 1:].any()
        (logits, values), after = self.model(block.seen, block.last, start, _inside(reset) if inside else None)
        self.memories[0] = after.detach()
        advantage = advantages(
            block.rewards, block.ended, values.detach(), block.bootstrap, settings.discount, settings.trace
        )
        target = advantage + values.detach()
        log_p = F.log_softmax(logits, dim=-1)
        chosen = log_p.gather(-1, block.actions.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        actor = -(advantage * chosen).mean()
        critic = (target - values).square().mean() / 2
        penalty = span_penalty(self.model, settings.span_loss)
        return actor + settings.value_cost * critic - settings.entropy_cost * entropy.mean() + penalty

    def score(self, data: Any) -> dict[str, float]:
        try:
            return super().score(data)
        except ScoresError:
            self._refuse_nonsense(math.nan)
            raise

    # ---------------------------------------------------------------- what is kept and told

    def _memory_tensors(self) -> dict[str, Tensor]:
        return super()._memory_tensors() | checkpoint.with_prefix("actors", self.stream.tensors())

    def _load_memory(self, own: dict[str, Tensor]) -> None:
        super()._load_memory(own)
        self.stream.load(checkpoint.without_prefix("actors", own))

    def curve_extras(self) -> dict[str, float]:
        """The reward of the episodes that ended since the last evaluation, as the paper's curves show it."""
        reward, episodes = self.stream.finished.tolist()
        self.stream.finished = torch.zeros_like(self.stream.finished)
        return {"episodes": episodes, **({"training_reward": reward / episodes} if episodes else {})}

    def record(self, test: dict[str, float] | None) -> dict[str, Any]:
        return {**super().record(test), "unit": self.unit, "bounds": self.bounds}


def _inside(reset: Tensor) -> Tensor:
    """The resets without those of the first step, which were done before the block."""
    return torch.cat([torch.zeros_like(reset[:, :1]), reset[:, 1:]], dim=1)
