"""Maze navigation (paper, section 4.2.2 and appendix), and its easy version without a heading."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from feedback_transformer.config import ConfigError, at_least, check_types, documented
from feedback_transformer.environments.grid import MOVES, TURNS, Grid, Ways, make_grid, with_walls
from feedback_transformer.environments.world import (
    COLOURS,
    Bools,
    Environment,
    Floats,
    Ints,
    Scene,
    World,
)

FREE, WALL, OBJECT = range(3)  # what a cell shows; object k is OBJECT + k


@dataclass(frozen=True)
class Maze(Environment):
    """Coloured objects in a random maze. One colour is the goal; reaching it earns +1, then another one is the goal.

    Mazes are drawn by Kruskal's algorithm over the rooms in every other row and column; then each dead end is opened by
    removing one of the blocks around it. The agent sees the 3 x 3 cells around it and the goal's colour. With turns it
    has a heading, its view is turned with it, and it can go forward, turn left and turn right; without (maze easy) it
    goes up, right, down and left. An episode is 200 steps in one maze.
    """

    size: int = documented(9, "cells per side, odd: rooms are in every other row and column")
    num_objects: int = documented(8, "coloured objects, at least 2")
    turns: bool = documented(True, "forward, left, right, with a heading; or four moves without one")
    episode_steps: int = documented(200, "steps in an episode")

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, 3, "size")
        at_least(self, 2, "num_objects")
        at_least(self, 1, "episode_steps")
        if self.size % 2 == 0:
            raise ConfigError(f"Maze.size = {self.size} must be odd, because rooms are in every other row and column")
        rooms = ((self.size + 1) // 2) ** 2
        most = min(len(COLOURS), 2 * rooms - 2)
        if self.num_objects > most:
            raise ConfigError(f"Maze.num_objects = {self.num_objects} must be {most} or fewer for size {self.size}")

    @property
    def actions(self) -> tuple[str, ...]:  # type: ignore[override]
        return TURNS if self.turns else MOVES

    @property
    def observation_sizes(self) -> tuple[int, ...]:
        return (*[OBJECT + self.num_objects] * 9, self.num_objects)

    def world(self, copies: int) -> World:
        return MazeWorld(self, copies)


class MazeWorld(World):
    """Copies of the environment, each with its own maze."""

    def __init__(self, rules: Maze, copies: int) -> None:
        super().__init__(copies)
        self.rules = rules
        self.grid: Grid = make_grid(rules.size, rules.turns)
        self.ways = Ways(self.grid, copies)
        self.shown = np.full((copies, rules.size + 2, rules.size + 2), WALL)  # what a cell shows, with a border
        self.tables = np.zeros((copies, *self.grid.table.shape), np.int64)
        self.objects = np.zeros((copies, rules.num_objects), np.int64)  # their cells
        self.place = np.zeros(copies, np.int64)
        self.target = np.zeros(copies, np.int64)

    def begin(self, rows: Ints) -> None:
        count, cells, objects = len(rows), self.grid.cells, self.rules.num_objects
        walls = random_mazes(self.draw(rows, _edges(self.rules.size).shape[0]),
                             self.draw(rows, len(_doors(self.rules.size)), 4), self.rules.size)  # fmt: skip
        order = np.where(walls, 2.0, self.draw(rows, cells)).argsort(axis=1)  # free cells first, in random order
        self.objects[rows] = order[:, :objects]
        shown = np.where(walls, WALL, FREE)
        shown[np.arange(count)[:, None], self.objects[rows]] = OBJECT + np.arange(objects)
        size = self.rules.size
        self.shown[rows, 1 : size + 1, 1 : size + 1] = shown.reshape(count, size, size)
        self.tables[rows] = with_walls(self.grid, walls)
        heading = self.draw_below(rows, 4) if self.rules.turns else 0
        self.place[rows] = order[:, objects] + heading * cells
        self.target[rows] = self.draw_below(rows, objects)
        self.clock[rows] = 0

    def act(self, actions: Ints) -> tuple[Floats, Bools, Bools]:
        copies = np.arange(len(actions))
        self.place = self.tables[copies, self.place, actions]
        self.clock += 1
        reached = self.grid.cell[self.place] == self.objects[copies, self.target]
        if reached.any():
            rows = reached.nonzero()[0]
            further = 1 + self.draw_below(rows, self.rules.num_objects - 1)  # any but the one just reached
            self.target[rows] = (self.target[rows] + further) % self.rules.num_objects
        late = self.clock >= self.rules.limit
        return reached.astype(np.float64), np.zeros_like(late), late

    def observe(self) -> Ints:
        copies = np.arange(len(self.place))[:, None]
        around = self.shown.reshape(len(self.place), -1)[copies, self.grid.view[self.place]]
        return np.concatenate([around, self.target[:, None]], axis=1)

    def oracle(self) -> Ints:
        goals = self.objects[np.arange(len(self.target)), self.target]
        return self.ways.first_actions(self.tables, self.place, goals, self.version)

    def scene(self, row: int) -> Scene:
        size = self.rules.size
        heading, cell = divmod(int(self.place[row]), size**2)
        at = divmod(cell, size)
        marks = [
            (*divmod(int(cell), size), name[0].upper(), colour)
            for cell, (name, colour) in zip(self.objects[row], COLOURS, strict=False)
        ]
        name, colour = COLOURS[self.target[row]]
        seen = np.zeros((size + 2, size + 2), dtype=bool)
        seen[at[0] : at[0] + 3, at[1] : at[1] + 3] = True
        agent = (*at, heading if self.rules.turns else None)
        caption = f"to {name}, step {self.clock[row]} of {self.rules.limit}"
        walls = self.shown[row, 1:-1, 1:-1] == WALL
        return Scene(walls, marks, agent, seen[1:-1, 1:-1], caption, colour)


def random_mazes(edge_draws: Floats, opening_draws: Floats, size: int) -> Bools:
    """Draws [B, edges] and [B, rooms, 4] -> walls [B, cells]: Kruskal's spanning tree, then dead ends opened."""
    copies, rooms = np.arange(len(edge_draws)), ((size + 1) // 2) ** 2
    walls = np.ones((len(copies), size**2), dtype=bool)
    walls.reshape(-1, size, size)[:, ::2, ::2] = False
    part = np.tile(np.arange(rooms), (len(copies), 1))  # which rooms are connected so far
    edges = _edges(size)
    for edge in edge_draws.argsort(axis=1).T:
        first, second, block = edges[edge].T
        mine, other = part[copies, first], part[copies, second]
        walls[copies, block] &= mine == other
        np.copyto(part, mine[:, None], where=part == other[:, None])
    for room, blocks in enumerate(_doors(size)):
        closed = walls[:, blocks]
        dead_end = closed.sum(axis=1) == len(blocks) - 1
        chosen = np.where(closed, opening_draws[:, room, : len(blocks)], -1.0).argmax(axis=1)
        walls[copies, blocks[chosen]] &= ~dead_end
    return walls


@functools.cache
def _edges(size: int) -> Ints:
    """[edges, 3]: two neighbouring rooms and the cell of the block between them."""
    side = (size + 1) // 2
    room = np.arange(side**2).reshape(side, side)
    cell = np.arange(size**2).reshape(size, size)
    across = [room[:, :-1], room[:, 1:], cell[::2, 1::2]]
    down = [room[:-1], room[1:], cell[1::2, ::2]]
    return np.concatenate([np.stack([part.ravel() for part in kind], axis=1) for kind in (across, down)])


@functools.cache
def _doors(size: int) -> tuple[Ints, ...]:
    """The blocks around each room."""
    edges, rooms = _edges(size), ((size + 1) // 2) ** 2
    return tuple(edges[(edges[:, :2] == room).any(axis=1), 2] for room in range(rooms))
