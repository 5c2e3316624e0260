"""Moving, seeing and shortest paths in a square grid: what the mazes share.

A place is a cell, or with turns a cell and a heading: heading * cells + cell. The dynamics are then one table,
`next place = table[place, action]`, and shortest paths follow from the same table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feedback_transformer.environments.world import Bools, Ints

HEADINGS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left as (row, column)
MOVES = ("up", "right", "down", "left")
TURNS = ("forward", "left", "right")
FAR = 10**6  # longer than any path


class Grid(NamedTuple):
    """The geometry of a grid without walls."""

    size: int
    table: Ints  # [places, actions] -> place, in an empty grid
    cell: Ints  # [places] -> cell
    ahead: Ints  # [places, actions] -> the cell that must be free for the action
    view: Ints  # [places, 9] -> the 3 x 3 cells around, the row ahead first, as cells of the grid with a border

    @property
    def cells(self) -> int:
        return self.size**2


def make_grid(size: int, turns: bool) -> Grid:
    """With turns, the agent has a heading and its view is turned with it; without, north is up."""
    cells = np.arange(size**2)
    steps = np.stack([_shift(cells, size, heading) for heading in range(4)])  # [heading, cells]
    around = np.stack([np.rot90(_around(size), k=heading, axes=(1, 2)).reshape(-1, 9) for heading in range(4)])
    if not turns:
        return Grid(size, steps.T.copy(), cells, steps.T.copy(), around[0])
    heading, cell = np.divmod(np.arange(4 * size**2), size**2)
    forward = heading * size**2 + steps[heading, cell]
    left, right = ((heading + turn) % 4 * size**2 + cell for turn in (-1, 1))
    table = np.stack([forward, left, right], axis=1)
    return Grid(size, table, cell, np.stack([steps[heading, cell], cell, cell], axis=1), around.reshape(-1, 9))


def _shift(cells: Ints, size: int, heading: int) -> Ints:
    """The cell one step ahead, or the same one at the edge of the grid."""
    row, column = (np.stack(np.divmod(cells, size)) + HEADINGS[heading][:, None]).clip(0, size - 1)
    return row * size + column


def _around(size: int) -> Ints:
    """[cells, 3, 3]: the cells around each, numbered in the grid with its border."""
    row, column = np.divmod(np.arange(size**2), size)
    near = np.arange(3)
    return (row[:, None, None] + near[:, None]) * (size + 2) + column[:, None, None] + near


def with_walls(grid: Grid, walls: Bools) -> Ints:
    """walls [B, cells] -> tables [B, places, actions] in which no action enters a wall."""
    places = np.arange(len(grid.table))[:, None]
    return np.where(walls[:, grid.ahead], places, grid.table)


class Ways:
    """Shortest paths of B copies, recomputed only for copies that have changed."""

    def __init__(self, grid: Grid, copies: int) -> None:
        self.grid = grid
        self.known = np.full((copies, 2), -1)  # which of a copy's worlds its distances are of
        self.distance = np.zeros((copies, len(grid.table)), np.int32)

    def first_actions(self, tables: Ints, places: Ints, goals: Ints, version: Ints) -> Ints:
        """The first action [B] of a shortest path from each place to its goal cell; tables [B or 1, places, actions].

        `version` [B, 2] identifies the copies' worlds.
        """
        tables = np.broadcast_to(tables, (len(places), *self.grid.table.shape))
        rows = (version != self.known).any(axis=1).nonzero()[0]
        if len(rows):
            self.distance[rows] = distances(self.grid, tables[rows], goals[rows])
            self.known = version
        copies = np.arange(len(places))
        return self.distance[copies[:, None], tables[copies, places]].argmin(axis=1)


def distances(grid: Grid, tables: Ints, goals: Ints) -> NDArray[np.int32]:
    """Steps from every place to the goal cell [B, places], by relaxation until nothing changes."""
    flat = tables + np.arange(len(tables))[:, None, None] * len(grid.table)
    known = np.where(grid.cell == goals[:, None], 0, FAR).astype(np.int32)
    while True:
        shorter = np.minimum(known, 1 + known.ravel()[flat].min(axis=2))
        if np.array_equal(shorter, known):
            return known
        known = shorter
