"""The worlds: Gymnasium's conventions, exact seeds, one copy like many, the rules, and an oracle that solves them."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from feedback_transformer.config import ConfigError
from feedback_transformer.environments.corridor import DOORS, FORWARD, LEFT, RIGHT, Corridor
from feedback_transformer.environments.grid import HEADINGS
from feedback_transformer.environments.gym import IDS, BatchedEnv, SingleEnv
from feedback_transformer.environments.maze import OBJECT, WALL, Maze, MazeWorld, random_mazes
from feedback_transformer.environments.play import play_oracle, play_randomly
from feedback_transformer.environments.water_maze import WaterMaze, WaterMazeWorld
from feedback_transformer.environments.world import Environment, Trial

SMALL: list[Environment] = [
    Corridor(length=3),
    Maze(size=5, num_objects=3, episode_steps=15),
    Maze(size=5, num_objects=3, episode_steps=15, turns=False),
    WaterMaze(size=4, episode_steps=12),
]


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_has_nothing_to_complain_of(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped)


def rollout(env: Any, actions: Any, seed: int) -> list[tuple[Any, ...]]:
    """All that a copy gives: an episode that ends is followed by the next one within the step."""
    seen, _ = env.reset(seed=seed)
    given = [(tuple(seen), 0.0, False, False)]
    for action in actions:
        seen, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            seen, _ = env.reset()
        given.append((tuple(seen), reward, terminated, truncated))
    return given


@pytest.mark.parametrize("environment", SMALL, ids=str)
def test_a_copy_in_a_batch_lives_through_the_episodes_of_a_single_one(environment: Environment) -> None:
    copies, steps, seed = 7, 60, 123
    actions = np.random.default_rng(0).integers(len(environment.actions), size=(steps, copies))
    envs = BatchedEnv(environment, copies)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    seen, _ = envs.reset(seed=seed)
    batched = [(seen, np.zeros(copies), np.zeros(copies, bool), np.zeros(copies, bool))]
    batched += [envs.step(row)[:4] for row in actions]
    for copy in range(copies):
        alone = rollout(SingleEnv(environment), actions[:, copy], seed + copy)
        together = [(tuple(s[copy]), r[copy], t[copy], u[copy]) for s, r, t, u in batched]
        assert alone == together
    assert sum((t | u).sum() for _, _, t, u in batched) > copies, "episodes end within the rollout"


@pytest.mark.parametrize("environment", SMALL, ids=str)
def test_the_last_observation_of_an_episode_is_not_lost(environment: Environment) -> None:
    envs = BatchedEnv(environment, 3)
    envs.reset(seed=5)
    for _ in range(environment.limit):
        _, _, terminated, truncated, info = envs.step(np.full(3, FORWARD))
    assert (terminated | truncated).all()
    assert info["_final_obs"].all()
    for copy in range(3):
        alone = SingleEnv(environment)
        alone.reset(seed=5 + copy)
        for _ in range(environment.limit):
            seen = alone.step(FORWARD)[0]
        assert tuple(info["final_obs"][copy]) == tuple(seen)


@pytest.mark.parametrize("environment", [Maze(), WaterMaze()], ids=str)
def test_the_oracle_knows_the_world_of_a_new_seed(environment: Environment) -> None:
    env, fresh = SingleEnv(environment), SingleEnv(environment)
    env.reset(seed=0)
    env.world.oracle()
    env.reset(seed=1)
    fresh.reset(seed=1)
    for _ in range(30):
        assert env.world.oracle().tolist() == fresh.world.oracle().tolist()
        env.step(int(env.world.oracle()[0]))
        fresh.step(int(fresh.world.oracle()[0]))


@pytest.mark.parametrize("environment", SMALL, ids=str)
def test_a_saved_world_goes_on_as_if_nothing_had_happened(environment: Environment) -> None:
    actions = np.random.default_rng(1).integers(len(environment.actions), size=(40, 5))
    first = BatchedEnv(environment, 5)
    first.reset(seed=9)
    for row in actions[:11]:
        first.step(row)
    second = BatchedEnv(environment, 5)
    second.world.load(first.world.tensors())
    for row in actions[11:]:
        for one, other in zip(first.step(row)[:4], second.step(row)[:4], strict=True):
            np.testing.assert_array_equal(one, other)


def test_seeds_give_the_same_again_and_neighbours_give_others() -> None:
    worlds = [Maze().world(4) for _ in range(2)]
    for world in worlds:
        world.seed([7, 7, 8, 9])
        world.begin(np.arange(4))
    seen = worlds[0].observe()
    np.testing.assert_array_equal(seen, worlds[1].observe())
    np.testing.assert_array_equal(seen[0], seen[1])
    assert len({tuple(world) for world in worlds[0].shown.reshape(4, -1)}) == 3  # type: ignore[attr-defined]
    numbers = worlds[0].draw(np.arange(4), 50_000)
    assert 0 <= numbers.min() < numbers.max() < 1
    np.testing.assert_allclose(numbers[1:].mean(axis=1), 0.5, atol=0.01)
    assert abs(np.corrcoef(numbers[1:])[0, 1]) < 0.02, "streams of neighbouring seeds are unlike"


# ------------------------------------------------------------------------------------------------ the rules


def test_waiting_in_the_corridor_shows_nothing_and_coming_late_costs() -> None:
    env = SingleEnv(Corridor(length=4))
    colours = set()
    for seed in range(20):
        first, _ = env.reset(seed=seed)
        colours.add(int(first[0]))
        seen, rewards, ended = [], [], False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(np.int64(LEFT))
            seen.append(int(observation[0]))
            rewards.append(reward)
            ended = terminated or truncated
        assert set(seen) == {0}
        assert rewards == [0.0] * (4 * 4 + 9) + [-1.0]
    assert colours == {1, 2}, "blue and green"


@pytest.mark.parametrize("door", [LEFT, RIGHT])
def test_the_door_of_the_objects_colour_is_the_right_one(door: int) -> None:
    env = SingleEnv(Corridor(length=2))
    for seed in range(10):
        first, _ = env.reset(seed=seed)
        env.step(np.int64(FORWARD))
        seen, *_ = env.step(np.int64(FORWARD))
        assert seen[0] == DOORS
        assert env.step(np.int64(FORWARD))[0][0] == DOORS
        _, reward, terminated, truncated, _ = env.step(np.int64(door))
        assert reward == (1.0 if (first[0] == 1) == (door == LEFT) else -1.0)
        assert (terminated, truncated) == (True, False)


@pytest.mark.parametrize("size", [3, 5, 9, 13])
def test_mazes_are_connected_and_have_no_dead_ends(size: int) -> None:
    random, rooms = np.random.default_rng(size), ((size + 1) // 2) ** 2
    side = (size + 1) // 2
    walls = random_mazes(random.random((40, 2 * side * (side - 1))), random.random((40, rooms, 4)), size)
    assert len({tuple(maze) for maze in walls}) > {3: 0, 5: 5}.get(size, 30)
    for free in ~walls.reshape(-1, size, size):
        assert free[::2, ::2].all()
        assert not free[1::2, 1::2].any(), "a maze, not an open place"
        border = np.pad(free, 1)
        neighbours = border[:-2, 1:-1] + 0 + border[2:, 1:-1] + border[1:-1, :-2] + border[1:-1, 2:]
        assert (neighbours[free] >= 2).all()
        reached = np.zeros_like(free)
        reached[0, 0] = True
        for _ in range(size**2):
            near = np.pad(reached, 1)
            reached |= free & (near[:-2, 1:-1] | near[2:, 1:-1] | near[1:-1, :-2] | near[1:-1, 2:])
        assert (reached == free).all()


@pytest.mark.parametrize("turns", [True, False])
def test_a_maze_agrees_with_a_simulator_that_walks_cell_by_cell(turns: bool) -> None:
    rules = Maze(turns=turns)
    world = MazeWorld(rules, 3)
    world.seed([1, 2, 3])
    world.begin(np.arange(3))
    random = np.random.default_rng(0)
    rewards = 0.0
    for copy in range(3):
        shown = world.shown[copy]
        heading, cell = divmod(int(world.place[copy]), 81)
        place = np.array(divmod(cell, 9)) + 1
        for _ in range(150):
            oracle = world.oracle()
            actions = np.where(random.random(3) < 0.5, oracle, random.integers(len(rules.actions), size=3))
            target = int(world.target[copy])
            action = int(actions[copy])
            if turns:
                heading = (heading + {0: 0, 1: -1, 2: 1}[action]) % 4
                ahead = place + HEADINGS[heading] * (action == 0)
            else:
                ahead = place + HEADINGS[action]
            place = place if shown[tuple(ahead)] == WALL else ahead
            world.clock[:] = 0
            reward, _, _ = world.act(actions)
            expected = float(shown[tuple(place)] == OBJECT + target)
            assert reward[copy] == expected
            assert (world.target[copy] != target) == bool(expected), "another colour is asked for"
            rewards += expected
            around = shown[place[0] - 1 : place[0] + 2, place[1] - 1 : place[1] + 2]
            seen = world.observe()[copy]
            np.testing.assert_array_equal(seen[:9].reshape(3, 3), np.rot90(around, heading if turns else 0))
            assert seen[9] == world.target[copy]
    assert rewards > 5


def test_a_water_maze_names_its_cells_shows_a_near_goal_and_puts_the_agent_elsewhere() -> None:
    world = WaterMazeWorld(WaterMaze(size=5), 4)
    world.seed([4, 5, 6, 7])
    world.begin(np.arange(4))
    assert (np.sort(world.names, axis=1) == np.arange(25)).all(), "every cell has a name of its own"
    reached = 0
    for _ in range(100):
        place, goal = np.divmod(world.place, 5), np.divmod(world.goal, 5)
        seen = world.observe()
        for copy in range(4):
            down, right = goal[0][copy] - place[0][copy], goal[1][copy] - place[1][copy]
            near = max(abs(down), abs(right)) <= 1
            assert seen[copy, 2] == (1 + 3 * (down + 1) + (right + 1) if near else 0)
        np.testing.assert_array_equal(seen[:, 0], world.names[np.arange(4), world.place])
        reward, _, _ = world.act(world.oracle())
        reached += int(reward.sum())
        assert (world.place != world.goal).all()
    assert reached > 60


# ------------------------------------------------------------------------------------------------ how much is possible


@pytest.mark.parametrize(
    ("environment", "low", "high"),
    [
        (Corridor(), 1.0, 1.0),
        (Maze(), 16.0, 19.0),
        (Maze(turns=False), 23.0, 27.0),
        # From a random other cell of a 15 x 15 grid to a random goal it is 10 steps: 200 / 10.
        (WaterMaze(), 19.0, 21.0),
    ],
    ids=str,
)
def test_the_oracle_earns_what_is_possible_and_chance_does_not(
    environment: Environment, low: float, high: float
) -> None:
    best = play_oracle(environment, Trial(48, seed=1))
    assert low <= best.mean() <= high
    assert play_randomly(environment, Trial(48, seed=1)).mean() < 0.1 * best.mean()


def test_the_oracle_takes_the_shortest_way() -> None:
    """Without walls that is the distance by rows and columns."""
    world = WaterMazeWorld(WaterMaze(size=7), 30)
    world.seed(np.arange(30))
    world.begin(np.arange(30))
    rows, columns = np.abs(np.array(np.divmod(world.place, 7)) - np.array(np.divmod(world.goal, 7)))
    arrived = np.zeros(30, dtype=int)
    for step in range(1, 20):
        reward, _, _ = world.act(world.oracle())
        arrived = np.where((arrived == 0) & (reward > 0), step, arrived)
    np.testing.assert_array_equal(arrived, rows + columns)


# ------------------------------------------------------------------------------------------------ pictures and mistakes


@pytest.mark.parametrize("name", IDS)
def test_pictures_show_what_changes(name: str) -> None:
    env = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    before = env.render()
    for action in env.world.oracle().repeat(3):  # type: ignore[attr-defined]
        env.step(action)
    after = env.render()
    assert before.shape == after.shape  # type: ignore[union-attr]
    assert before.dtype == np.uint8  # type: ignore[union-attr]
    assert (before != after).any()  # type: ignore[union-attr]


def test_text_shows_walls_objects_and_the_agent() -> None:
    env = SingleEnv(Maze(), render_mode="ansi")
    env.reset(seed=3)
    text = env.render()
    assert isinstance(text, str)
    assert len(text.splitlines()) == 10
    assert all(letter in text for letter in ("##", "B", "G", "V", "step 0 of 200"))
    assert any(arrow in text for arrow in "^>v<")
    long = SingleEnv(Corridor(length=1000), render_mode="ansi")
    long.reset(seed=0)
    assert max(map(len, str(long.render()).splitlines())) < 80


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Corridor(length=0), "Corridor.length = 0 must be 1 or more"),
        (lambda: Maze(size=8), "Maze.size = 8 must be odd"),
        (lambda: Maze(num_objects=9), "Maze.num_objects = 9 must be 8 or fewer"),
        (lambda: Maze(size=3, num_objects=7), "Maze.num_objects = 7 must be 6 or fewer for size 3"),
        (lambda: WaterMaze(episode_steps=0), "WaterMaze.episode_steps = 0 must be 1 or more"),
        (lambda: SingleEnv("labyrinth"), "there is no environment 'labyrinth'"),
        (lambda: SingleEnv("corridor", lenght=3), "Corridor has no field 'lenght'; did you mean 'length'"),
        (lambda: SingleEnv("corridor", render_mode="human"), "render_mode = 'human' is not known"),
        (lambda: BatchedEnv("corridor", 0), "num_envs = 0 must be 1 or more"),
        (lambda: Corridor().lanes(1, 1, 0, 0), "has no data to read"),
    ],
)
def test_a_mistake_is_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    assert sentence in str(raised.value)
