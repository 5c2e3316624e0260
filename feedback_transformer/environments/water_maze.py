"""Water maze (paper, appendix): no walls, every cell has a name, and a goal has to be found again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feedback_transformer.config import at_least, check_types, documented
from feedback_transformer.environments.grid import MOVES, Ways, make_grid
from feedback_transformer.environments.world import (
    GREEN,
    Bools,
    Environment,
    Floats,
    Ints,
    Scene,
    World,
)


@dataclass(frozen=True)
class WaterMaze(Environment):
    """Find the goal, be moved to a random cell, and find it again; remembering the layout of the cells saves steps.

    An episode draws a goal and a name (a number) for every cell. The agent sees the name of its cell, the name of the
    goal's cell, and where the goal is if it is among the 3 x 3 cells around it. It goes up, right, down and left.
    Reaching the goal earns +1 and moves the agent to some other cell. An episode is 200 steps.
    """

    size: int = documented(15, "cells per side")
    episode_steps: int = documented(200, "steps in an episode")

    actions = MOVES

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, 2, "size")
        at_least(self, 1, "episode_steps")

    @property
    def observation_sizes(self) -> tuple[int, ...]:
        return (self.size**2, self.size**2, 10)

    def world(self, copies: int) -> World:
        return WaterMazeWorld(self, copies)


class WaterMazeWorld(World):
    """Copies of a water maze."""

    def __init__(self, rules: WaterMaze, copies: int) -> None:
        super().__init__(copies)
        self.rules = rules
        self.grid = make_grid(rules.size, turns=False)
        self.ways = Ways(self.grid, copies)
        self.names = np.zeros((copies, self.grid.cells), np.int64)
        self.goal = np.zeros(copies, np.int64)
        self.place = np.zeros(copies, np.int64)

    def begin(self, rows: Ints) -> None:
        self.names[rows] = self.draw(rows, self.grid.cells).argsort(axis=1)
        self.goal[rows] = self.draw_below(rows, self.grid.cells)
        self.clock[rows] = 0
        self._put_anywhere(rows)

    def _put_anywhere(self, rows: Ints) -> None:
        """Move the agents to any cell but the goal."""
        cells = self.grid.cells
        self.place[rows] = (self.goal[rows] + 1 + self.draw_below(rows, cells - 1)) % cells

    def act(self, actions: Ints) -> tuple[Floats, Bools, Bools]:
        self.place = self.grid.table[self.place, actions]
        self.clock += 1
        reached = self.place == self.goal
        if reached.any():
            self._put_anywhere(reached.nonzero()[0])
        late = self.clock >= self.rules.limit
        return reached.astype(np.float64), np.zeros_like(late), late

    def observe(self) -> Ints:
        copies = np.arange(len(self.place))
        row, column = np.divmod(self.goal, self.rules.size)
        inside = (row + 1) * (self.rules.size + 2) + column + 1  # the goal's cell in the grid with its border
        near = self.grid.view[self.place] == inside[:, None]
        sight = np.where(near.any(axis=1), 1 + near.argmax(axis=1), 0)
        return np.stack([self.names[copies, self.place], self.names[copies, self.goal], sight], axis=1)

    def oracle(self) -> Ints:
        return self.ways.first_actions(self.grid.table[None], self.place, self.goal, self.version)

    def scene(self, row: int) -> Scene:
        size = self.rules.size
        at, goal = divmod(int(self.place[row]), size), divmod(int(self.goal[row]), size)
        seen = np.zeros((size + 2, size + 2), dtype=bool)
        seen[at[0] : at[0] + 3, at[1] : at[1] + 3] = True
        names = {divmod(cell, size): str(name) for cell, name in enumerate(self.names[row])}
        walls = np.zeros((size, size), dtype=bool)
        caption = f"step {self.clock[row]} of {self.rules.limit}"
        return Scene(walls, [(*goal, "G", GREEN)], (*at, None), seen[1:-1, 1:-1], caption, names=names)
