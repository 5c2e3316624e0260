"""A scene as pixels or as text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feedback_transformer.environments.world import Colour, Scene

CELL, FINER = 28, 3  # pixels per cell; drawn larger and then scaled down, for smooth edges
WALL, FLOOR, SEEN, INK = (70, 74, 82), (244, 243, 239), (255, 236, 179), (30, 30, 30)
ARROWS = "^>v<"


def as_pixels(scene: Scene) -> NDArray[np.uint8]:
    """[height, width, 3]: the grid, and a line of text below it."""
    from PIL import Image, ImageDraw, ImageFont

    rows, columns = scene.walls.shape
    unit = CELL * FINER
    wide = max(columns, 8)
    image = Image.new("RGB", (wide * unit, (rows + 1) * unit), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    left = (wide - columns) * unit // 2

    def corner(row: int, column: int) -> tuple[int, int]:
        return left + column * unit, row * unit

    def box(row: int, column: int, inset: float, colour: Colour, round_: bool = False) -> None:
        x, y = corner(row, column)
        size = (x + inset * unit, y + inset * unit, x + (1 - inset) * unit - 1, y + (1 - inset) * unit - 1)
        (draw.ellipse if round_ else draw.rectangle)(size, fill=colour)

    small, large = (ImageFont.load_default(size) for size in (unit * 0.36, unit * 0.55))
    for row, column in np.ndindex(rows, columns):
        fill = WALL if scene.walls[row, column] else SEEN if scene.seen[row, column] else FLOOR
        box(row, column, 0.02, fill)
        if name := scene.names.get((row, column)):
            x, y = corner(row, column)
            draw.text((x + unit / 2, y + unit / 2), name, fill=(170, 168, 160), font=small, anchor="mm")
    for row, column, _, colour in scene.marks:
        box(row, column, 0.14, colour)
    row, column, heading = scene.agent
    x, y = corner(row, column)
    if heading is None:
        box(row, column, 0.24, INK, round_=True)
    else:
        points = np.array([(0.0, -0.34), (0.26, 0.28), (0.0, 0.14), (-0.26, 0.28)])
        for _ in range(heading):
            points = np.stack([-points[:, 1], points[:, 0]], axis=1)
        draw.polygon([(x + (0.5 + px) * unit, y + (0.5 + py) * unit) for px, py in points], fill=INK)
    below = (rows + 0.5) * unit
    if scene.caption_colour:
        draw.rectangle((0.2 * unit, below - 0.3 * unit, 0.8 * unit, below + 0.3 * unit), fill=scene.caption_colour)
    draw.text((unit * (1.0 if scene.caption_colour else 0.2), below), scene.caption, fill=INK, font=large, anchor="lm")
    return np.asarray(image.resize((wide * CELL, (rows + 1) * CELL), Image.Resampling.BOX))


def as_text(scene: Scene) -> str:
    """Two characters per cell: ## for a wall, letters for objects, an arrow or @ for the agent."""
    cells = np.where(scene.walls, "##", " .").astype(object)
    for row, column, letter, colour in scene.marks:
        cells[row, column] = " " + _coloured(letter, colour)
    row, column, heading = scene.agent
    cells[row, column] = " \033[1m" + ("@" if heading is None else ARROWS[heading]) + "\033[0m"
    lines = ["".join(line) for line in cells]
    caption = _coloured(scene.caption, scene.caption_colour) if scene.caption_colour else scene.caption
    return "\n".join([*lines, caption])


def _coloured(text: str, colour: Colour) -> str:
    return "\033[38;2;{};{};{}m{}\033[0m".format(*colour, text)
