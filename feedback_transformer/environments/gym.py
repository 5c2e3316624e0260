"""The worlds as Gymnasium environments: one copy as an `Env`, thousands as a `VectorEnv`. Importing registers them.

    import gymnasium
    import feedback_transformer.environments.gym

    env = gymnasium.make("FeedbackTransformer/Corridor-v0", length=50, render_mode="ansi")
    envs = gymnasium.make_vec("FeedbackTransformer/Maze-v0", num_envs=1024)

Copy i of `envs.reset(seed=s)` has the same episodes as `env.reset(seed=s + i)`. An episode that ends is followed by the
next one within the same step (`AutoresetMode.SAME_STEP`); `info["final_obs"]` has its last observation, in the rows
where `info["_final_obs"]` is true.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from feedback_transformer.config import ConfigError, from_dict, nearest
from feedback_transformer.environments.corridor import Corridor
from feedback_transformer.environments.maze import Maze
from feedback_transformer.environments.picture import as_pixels, as_text
from feedback_transformer.environments.water_maze import WaterMaze
from feedback_transformer.environments.world import Bools, Environment, Floats, Ints

KINDS: dict[str, type[Environment]] = {"corridor": Corridor, "maze": Maze, "water-maze": WaterMaze}
RENDER_MODES = ["rgb_array", "ansi"]
Frame = NDArray[np.uint8] | str


def make_environment(environment: str | Environment, fields: dict[str, Any]) -> Environment:
    if isinstance(environment, Environment):
        return environment
    if environment not in KINDS:
        raise ConfigError(f"there is no environment {environment!r}{nearest(environment, KINDS)}")
    return from_dict(KINDS[environment], fields)


def action_space(environment: Environment) -> spaces.Discrete:
    return spaces.Discrete(len(environment.actions))


def observation_space(environment: Environment) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(np.array(environment.observation_sizes))


class SingleEnv(gymnasium.Env[Ints, np.int64]):
    """One copy of a world."""

    metadata = {"render_modes": RENDER_MODES, "render_fps": 8}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, environment: str | Environment, render_mode: str | None = None, **fields: Any) -> None:
        self.environment = make_environment(environment, fields)
        if render_mode not in (None, *RENDER_MODES):
            raise ConfigError(f"render_mode = {render_mode!r} is not known; choose one of {', '.join(RENDER_MODES)}")
        self.render_mode = render_mode
        self.action_space = action_space(self.environment)
        self.observation_space = observation_space(self.environment)
        self.world = self.environment.world(1)
        self.seeded = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Ints, dict[str, Any]]:
        """A new episode; with a seed, the first one of that seed."""
        super().reset(seed=seed)
        if seed is not None or not self.seeded:
            self.world.seed([seed if seed is not None else int(self.np_random.integers(2**62))])
            self.seeded = True
        self.world.begin(np.zeros(1, np.int64))
        return self.world.observe()[0], {}

    def step(self, action: np.int64) -> tuple[Ints, float, bool, bool, dict[str, Any]]:
        rewards, terminated, truncated = self.world.act(np.array([action], dtype=np.int64))
        return self.world.observe()[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Frame | None:
        """The scene as pixels [height, width, 3] or as text, as `render_mode` says."""
        if self.render_mode is None:
            return None
        scene = self.world.scene(0)
        return as_text(scene) if self.render_mode == "ansi" else as_pixels(scene)


class BatchedEnv(gymnasium.vector.VectorEnv[Ints, Ints, NDArray[Any]]):
    """Many copies of a world, stepped as arrays."""

    metadata = {"render_modes": RENDER_MODES, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self, environment: str | Environment, num_envs: int = 1, render_mode: str | None = None, **fields: Any
    ) -> None:
        self.environment = make_environment(environment, fields)
        if num_envs < 1:
            raise ConfigError(f"num_envs = {num_envs} must be 1 or more")
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_action_space = action_space(self.environment)
        self.single_observation_space = observation_space(self.environment)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.world = self.environment.world(num_envs)
        self.seeded = False

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Ints, dict[str, Any]]:
        """New episodes for all; copy i is seeded with seed + i."""
        if isinstance(seed, list):
            seeds = [int(self.np_random.integers(2**62)) if one is None else one for one in seed]
            self.world.seed(seeds)
        elif seed is not None or not self.seeded:
            super().reset(seed=seed)
            first = seed if seed is not None else int(self.np_random.integers(2**62))
            self.world.seed(first + np.arange(self.num_envs))
        self.seeded = True
        self.world.begin(np.arange(self.num_envs))
        return self.world.observe(), {}

    def step(self, actions: Ints) -> tuple[Ints, Floats, Bools, Bools, dict[str, Any]]:
        """One step of all copies; where an episode ended, the observation is the first of the next one."""
        rewards, terminated, truncated = self.world.act(np.asarray(actions, dtype=np.int64))
        ended = terminated | truncated
        info = {}
        if ended.any():
            info = {"final_obs": self.world.observe(), "_final_obs": ended}
            self.world.begin(ended.nonzero()[0])
        return self.world.observe(), rewards, terminated, truncated, info

    def render(self) -> tuple[Frame, ...] | None:
        """One frame per copy."""
        if self.render_mode is None:
            return None
        draw = as_text if self.render_mode == "ansi" else as_pixels
        return tuple(draw(self.world.scene(row)) for row in range(self.num_envs))


IDS: dict[str, dict[str, Any]] = {
    "FeedbackTransformer/Corridor-v0": {"environment": "corridor"},
    "FeedbackTransformer/Maze-v0": {"environment": "maze"},
    "FeedbackTransformer/MazeEasy-v0": {"environment": "maze", "turns": False},
    "FeedbackTransformer/WaterMaze-v0": {"environment": "water-maze"},
}

for _id, _fields in IDS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point=f"{__name__}:SingleEnv",
            vector_entry_point=f"{__name__}:BatchedEnv",
            kwargs=_fields,
        )
