"""Walking down a corridor (paper, section 4.1.1): the colour is shown once, the doors come at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feedback_transformer.config import at_least, check_types, documented
from feedback_transformer.environments.world import (
    BLUE,
    GREEN,
    Bools,
    Environment,
    Floats,
    Ints,
    Scene,
    World,
)

FORWARD, LEFT, RIGHT = range(3)
FLOOR, BLUE_OBJECT, GREEN_OBJECT, DOORS = range(4)
WINDOW = 24  # cells of a long corridor that a picture shows


@dataclass(frozen=True)
class Corridor(Environment):
    """A blue or a green object at the start, `length` steps of floor, then two doors: take the one with its colour.

        sees      green object   floor     floor    doors
        does      forward        forward   forward  right    +1

    The blue door is on the left, the green one on the right. The object is seen at the first step only, whatever the
    agent does, so waiting is no help. The correct door earns +1; the wrong one, or arriving too late, costs 1. Turning
    on the way, or walking forward at the doors, only takes time. The agent is not told its last action: otherwise it
    could turn left now and then for blue, right for green, and would only have to remember back to the last turn.
    """

    length: int = documented(30, "steps from the object to the doors")
    episode_steps: int = documented(0, "steps after which it is too late; 0 means 4 * length + 10")

    actions = ("forward", "left", "right")
    tells_action = False

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, 1, "length")
        at_least(self, 0, "episode_steps")

    @property
    def observation_sizes(self) -> tuple[int, ...]:
        return (4,)

    @property
    def limit(self) -> int:
        return self.episode_steps or 4 * self.length + 10

    @property
    def metric(self) -> str:
        return "success"

    def measure(self, rewards: Floats) -> Floats:
        return (rewards > 0).astype(np.float64)

    def world(self, copies: int) -> World:
        return CorridorWorld(self, copies)


class CorridorWorld(World):
    """Copies of a corridor."""

    def __init__(self, rules: Corridor, copies: int) -> None:
        super().__init__(copies)
        self.rules = rules
        self.place = np.zeros(copies, np.int64)
        self.green = np.zeros(copies, np.int64)  # the object is green

    def begin(self, rows: Ints) -> None:
        self.clock[rows], self.place[rows] = 0, 0
        self.green[rows] = self.draw_below(rows, 2)

    def act(self, actions: Ints) -> tuple[Floats, Bools, Bools]:
        at_doors = self.place == self.rules.length
        through = at_doors & (actions != FORWARD)
        right = (actions == RIGHT) == self.green
        self.place += (actions == FORWARD) & ~at_doors
        self.clock += 1
        late = (self.clock >= self.rules.limit) & ~through
        return np.where(through, np.where(right, 1.0, -1.0), -1.0 * late), through, late

    def observe(self) -> Ints:
        seen = np.where(self.place == self.rules.length, DOORS, FLOOR)
        colour = np.where(self.green, GREEN_OBJECT, BLUE_OBJECT)
        return np.where(self.clock == 0, colour, seen)[:, None]

    def oracle(self) -> Ints:
        return np.where(self.place == self.rules.length, LEFT + self.green, FORWARD)

    def scene(self, row: int) -> Scene:
        """The corridor from left to right, the doors above and below its last cell; of a long one only the part around
        the agent."""
        length, place = self.rules.length, int(self.place[row])
        first = min(max(0, place - WINDOW // 2), max(0, length - WINDOW))
        shown = range(first, min(length, first + WINDOW) + 1)
        walls, seen = np.ones((3, len(shown)), dtype=bool), np.zeros((3, len(shown)), dtype=bool)
        walls[1] = False
        seen[1, place - first] = True
        marks = []
        if length in shown:
            walls[:, -1] = False
            seen[:, -1] |= place == length
            marks = [(0, len(shown) - 1, "B", BLUE), (2, len(shown) - 1, "G", GREEN)]
        if self.clock[row] == 0:
            marks.append((1, 0, "O", GREEN if self.green[row] else BLUE))
            return Scene(walls, marks, (1, 0, 1), seen, f"a {'green' if self.green[row] else 'blue'} object")
        caption = f"step {self.clock[row]}, {length - place} to go"
        return Scene(walls, marks, (1, place - first, 1), seen, caption)
