"""What a world is: the rules of an environment for B copies at once, as arrays.

An `Environment` is a frozen dataclass whose fields set the difficulty; `environment.world(B)` makes B copies of it.
Each copy draws from its own stream of random numbers: copy i of a batch seeded with s has exactly the episodes of a
single copy seeded with s + i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from feedback_transformer.config import ConfigError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Colour = tuple[int, int, int]

# Okabe and Ito's colours, which colour-blind readers tell apart; a letter each for text.
BLUE, GREEN = (0, 114, 178), (0, 158, 115)
COLOURS: list[tuple[str, Colour]] = [
    ("blue", BLUE), ("green", GREEN), ("orange", (230, 159, 0)), ("sky", (86, 180, 233)), ("yellow", (240, 228, 66)),
    ("red", (213, 94, 0)), ("pink", (204, 121, 167)), ("violet", (110, 64, 170)),
]  # fmt: skip


@dataclass
class Scene:
    """What one copy looks like, for a renderer to turn into pixels or text."""

    walls: Bools  # [rows, columns]
    marks: list[tuple[int, int, str, Colour]]  # row, column, letter, colour
    agent: tuple[int, int, int | None]  # row, column, heading (0 up, then clockwise)
    seen: Bools  # [rows, columns], what the agent sees
    caption: str
    caption_colour: Colour | None = None
    names: dict[tuple[int, int], str] = field(default_factory=dict)  # small print in cells


class World(ABC):
    """B copies. Everything that changes is an attribute that is an array [B, ..], so that all of it can be saved."""

    def __init__(self, copies: int) -> None:
        self.keys = np.zeros(copies, np.int64)  # where the random stream of a copy begins
        self.drawn = np.zeros(copies, np.int64)  # how many numbers it has given
        self.clock = np.zeros(copies, np.int64)  # steps since the episode began

    @abstractmethod
    def begin(self, rows: Ints) -> None:
        """A new episode for these copies."""

    @abstractmethod
    def act(self, actions: Ints) -> tuple[Floats, Bools, Bools]:
        """One step of all copies: actions [B] -> rewards, terminated, truncated, [B] each."""

    @abstractmethod
    def observe(self) -> Ints:
        """What the copies see now: [B, parts], part p below `Environment.observation_sizes[p]`."""

    @abstractmethod
    def oracle(self) -> Ints:
        """The best actions [B], knowing everything."""

    @abstractmethod
    def scene(self, row: int) -> Scene: ...

    def seed(self, seeds: Sequence[int] | Ints) -> None:
        """Restart the random numbers; each copy has its own."""
        self.keys[:] = _mix(np.asarray(seeds, dtype=np.int64).view(np.uint64)).view(np.int64)
        self.drawn[:] = 0

    def draw(self, rows: Ints, *shape: int) -> Floats:
        """Uniform numbers in [0, 1), [rows, *shape]: number n of a stream is a hash of its key and n (SplitMix64)."""
        count = int(np.prod(shape))
        number = self.drawn[rows, None] + np.arange(1, count + 1)
        bits = _mix(self.keys[rows, None].view(np.uint64) + _GOLDEN * number.view(np.uint64))
        self.drawn[rows] += count
        return ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(len(rows), *shape)

    def draw_below(self, rows: Ints, limit: int) -> Ints:
        """A random whole number from 0 to limit - 1 for each row: [rows]."""
        return (self.draw(rows, 1)[:, 0] * limit).astype(np.int64)

    @property
    def version(self) -> Ints:
        """[B, 2]: the stream of random numbers and the position in it; copies with equal versions are equal."""
        return np.stack([self.keys, self.drawn], axis=1)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that changes, to be saved; `load` restores it."""
        return {name: torch.from_numpy(array.copy()) for name, array in self._arrays().items()}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        for name, array in self._arrays().items():
            array[...] = tensors[name].numpy()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's mixing of a counter, so that neighbouring counts give unrelated numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Trial:
    """Episodes to score a policy on: the seeds they start from."""

    count: int
    seed: int


class Environment(ABC):
    """A world's rules. Also a task (see `tasks/task.py`) whose score is what a policy earns."""

    actions: tuple[str, ...]
    episode_steps: int
    tells_action = True  # agents are told their last action; if not, they cannot leave themselves notes by acting

    @property
    @abstractmethod
    def observation_sizes(self) -> tuple[int, ...]:
        """How many values each of the small numbers of an observation can have."""

    @property
    def limit(self) -> int:
        """The number of steps after which an episode is over."""
        return self.episode_steps

    @abstractmethod
    def world(self, copies: int) -> World: ...

    @property
    def metric(self) -> str:
        """The score that ranks policies: the mean over episodes of `measure`."""
        return "reward"

    def measure(self, rewards: Floats) -> Floats:
        """The score of episodes, from their total rewards."""
        return rewards

    @property
    def input_size(self) -> int:
        return sum(self.observation_sizes)

    @property
    def output_size(self) -> int:
        return len(self.actions)

    @property
    def lower_is_better(self) -> bool:
        return False

    def fingerprints(self) -> dict[str, str]:
        """None: a world is fully defined by its fields."""
        return {}

    def lanes(self, batch_size: int, count: int, seed: int, number: int) -> Any:
        raise ConfigError(f"{type(self).__name__} is a world to act in and has no data to read; see training/a2c.py")

    def evaluation(self, split: str, count: int, seed: int) -> Trial:
        """Seeds below 2^62 are for training; each split has its own seeds above them."""
        number = ("validation", "test").index(split)
        own = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(3)
        return Trial(count, int(own) | 1 << 62)

    def score(self, model: nn.Module, data: Trial, device: torch.device) -> dict[str, float]:
        from feedback_transformer.environments.play import play

        rewards = play(self, data, model, device)
        return {self.metric: float(self.measure(rewards).mean())}
