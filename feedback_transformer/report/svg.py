"""Charts as SVG, coloured by a style sheet: readable in dark mode, in light mode and on paper.

In a page they are inline and use the page's style; `standalone` makes a file that includes the style.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 290, 56, 12, 10, 40
ROW, NAME_LINE = 30, 16  # of a dot chart
GAP, HEADING, LEGEND_LINE, LEGEND_LEFT, LETTER, TITLE_LETTER = 24, 32, 20, 8.0, 6.6, 9.0
WIDE_RANGE = 10  # an axis with at least this ratio is logarithmic
NEAR = 0.05  # of the scores: how far a published number may be from them if they hardly differ (fractions: anywhere)
NUM_COLOURS = 10  # eight after Okabe and Ito, which colour-blind readers can tell apart, and two more

STYLE = """
:root { --ground: #fff; --ink: #1b1f24; --faint: #d8dde3; --quiet: #57606a;
  --c0: #0072B2; --c1: #D55E00; --c2: #009E73; --c3: #CC79A7; --c4: #B58900; --c5: #2A9DD6; --c6: #333; --c7: #888;
  --c8: #8C510A; --c9: #6A3D9A; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #0d1117; --ink: #e6edf3; --faint: #30363d;
  --quiet: #9da7b3; --c0: #4CA6E0; --c1: #FF8A3D; --c2: #2CC79A; --c3: #E79BC6; --c4: #E6B93A; --c5: #8CCBF2;
  --c6: #ddd; --c7: #999; --c8: #C8873C; --c9: #B79AE0; } }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .tick, svg .label { fill: var(--quiet); }
svg .title { font-size: 15px; font-weight: 600; }
svg .grid { stroke: var(--faint); }
svg .ground { fill: var(--ground); }
svg .line { fill: none; stroke-width: 1.8; }
svg .mean { stroke-width: 3; }
svg .dot { fill-opacity: 0.55; }
"""
for number in range(NUM_COLOURS):
    STYLE += f"svg .c{number} {{ stroke: var(--c{number}); }}\n"
    STYLE += f"svg .dot.c{number} {{ fill: var(--c{number}); stroke: none; }}\n"


class Series(NamedTuple):
    """A line: its name in the legend, its colour's number, its points, and whether they are drawn as dots instead."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    dots: bool = False
    width: float = 1.8
    own_name: str = ""  # its tooltip, where several lines share a legend entry


class Row(NamedTuple):
    """A row of a dot chart: one dot per seed, a bar at their mean, and a diamond at the published number."""

    name: str
    colour: int
    values: Sequence[float]
    published: float | None = None


class Chart(NamedTuple):
    """The elements of a chart, and its height."""

    parts: list[str]
    height: float
    title: str

    def svg(self, place: str = "") -> str:
        """As an element of a page, or at a place in another."""
        size = f'viewBox="0 0 {WIDTH} {self.height:.0f}" width="{WIDTH}" height="{self.height:.0f}"'
        inside = "\n".join(self.parts)
        return f'<svg class="chart" {place}{size} role="img" aria-label="{escape(self.title)}">\n{inside}\n</svg>'


def standalone(charts: Sequence[Chart], title: str) -> str:
    """A file of charts side by side."""
    width = max(len(charts) * (WIDTH + GAP) - GAP, LEFT + int(TITLE_LETTER * len(title)))
    height = max(chart.height for chart in charts) + HEADING
    size = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height:.0f}"/>',
        _text(LEFT, 20, title, "title", "start"),
        *(chart.svg(f'x="{place * (WIDTH + GAP)}" y="{HEADING}" ') for place, chart in enumerate(charts)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def line_chart(series: Sequence[Series], x_label: str, y_label: str, by_place: bool = False) -> Chart:
    """Lines over a number; those of one colour and name share one legend entry.

    `by_place`: the numbers are few, each has its tick, and a wide range of them is drawn on a logarithmic axis.
    """
    points = [point for line in series for point in line.points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    bottom = HEIGHT - BOTTOM
    doubling = by_place and max(xs) > WIDE_RANGE * min(xs) > 0
    x = Scale(min(xs), max(xs), LEFT + 8, WIDTH - RIGHT - 8, doubling)
    marks = sorted(set(xs)) if by_place else ticks(x.low, x.high)
    y = Scale(min(ys), max(ys), bottom - 6, TOP + 6)
    parts = []
    for tick in ticks(y.low, y.high):
        parts.append(_line(LEFT, WIDTH - RIGHT, y(tick), y(tick), "grid"))
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", "tick", "end"))
    parts += [_text(x(mark), bottom + 15, f"{mark:g}", "tick") for mark in marks]
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 6, x_label, "label"))
    turned = f"translate(13 {(bottom + TOP) / 2}) rotate(-90)"
    parts.append(f'<text class="label" transform="{turned}" text-anchor="middle">{escape(y_label)}</text>')
    for line in series:
        places = [(x(a), y(b)) for a, b in line.points]
        if line.dots:
            parts += [_dot(*place, line.colour) for place in places]
        else:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            title, drawn = f"<title>{escape(line.own_name or line.name)}</title>", f"line c{line.colour % NUM_COLOURS}"
            width = f'style="stroke-width: {line.width:.2g}"'
            parts.append(f'<polyline class="{drawn}" {width} points="{path}">{title}</polyline>')
    legend, lines = _legend(series)
    return Chart(parts + legend, HEIGHT + LEGEND_LINE * lines, f"{y_label} over {x_label}")


def dot_chart(rows: Sequence[Row], x_label: str) -> Chart:
    """One row per variant. A published number too far from all others to share their axis is left out."""
    values = [value for row in rows for value in row.values]
    low, high = min(values), max(values)
    near = 1.0 if 0 <= low <= high <= 1 else max(high - low, NEAR * max(abs(low), abs(high)))
    rows = [row._replace(published=_within(row.published, low - near, high + near)) for row in rows]
    published = [row.published for row in rows if row.published is not None]
    values += published
    margin = 0.06 * (max(values) - min(values)) or 0.5
    left = 16 + LETTER * max(len(row.name) for row in rows)
    above = NAME_LINE if left > WIDTH / 2 else 0  # long names go above their dots
    left, height = (16.0, ROW + above) if above else (left, ROW)
    bottom = TOP + height * len(rows)
    x = Scale(min(values) - margin, max(values) + margin, left, WIDTH - RIGHT)
    parts = []
    for tick in ticks(x.low, x.high, 4):
        parts.append(_line(x(tick), x(tick), TOP, bottom, "grid"))
        parts.append(_text(x(tick), bottom + 15, f"{tick:g}", "tick"))
    for place, row in enumerate(rows):
        y = TOP + height * place + above + ROW / 2
        at, anchor = ((left, y - 14), "start") if above else ((left - 8, y + 4), "end")
        parts.append(_text(*at, row.name, "name", anchor))
        parts += [_dot(x(value), y, row.colour) for value in row.values]
        if row.values:
            mean = x(sum(row.values) / len(row.values))
            parts.append(_line(mean, mean, y - 10, y + 10, f"mean c{row.colour % NUM_COLOURS}"))
        if row.published is not None:
            parts.append(_diamond(x(row.published), y, row.colour))
    key = "one dot per seed, bar at the mean" + (", diamond: the paper" if published else "")
    parts.append(_text(WIDTH / 2, bottom + BOTTOM - 6, x_label, "label"))
    parts.append(_text(WIDTH / 2, bottom + BOTTOM + NAME_LINE - 6, key, "label"))
    return Chart(parts, bottom + BOTTOM + NAME_LINE, f"{x_label}; {key}")


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between low and high, about `count` of them.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = min((power * size for size in (1, 2, 5, 10)), key=lambda size: abs((high - low) / size - count))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


class Scale:
    """Maps numbers to coordinates; `doubling` by their logarithms."""

    def __init__(self, low: float, high: float, start: float, end: float, doubling: bool = False) -> None:
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high, self.start, self.end, self.doubling = low, high, start, end, doubling

    def __call__(self, value: float) -> float:
        low, high, here = map(math.log, (self.low, self.high, value)) if self.doubling else (self.low, self.high, value)
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """Entries below the chart, as many per line as fit; and how many lines."""
    names = dict.fromkeys((line.name, line.colour) for line in series)
    if len(names) < 2:
        return [], 0
    parts, x, lines = [], LEGEND_LEFT, 1
    for name, colour in names:
        width = 34 + LETTER * len(name)
        if x > LEGEND_LEFT and x + width > WIDTH:
            x, lines = LEGEND_LEFT, lines + 1
        y = HEIGHT + LEGEND_LINE * (lines - 0.5)
        parts.append(_line(x, x + 16, y, y, f"line c{colour % NUM_COLOURS}"))
        parts.append(_text(x + 21, y + 4, name, "name", "start"))
        x += width
    return parts, lines


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, x2: float, y1: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _dot(x: float, y: float, colour: int) -> str:
    return f'<circle class="dot c{colour % NUM_COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _within(value: float | None, low: float, high: float) -> float | None:
    return value if value is not None and low <= value <= high else None


def _diamond(x: float, y: float, colour: int) -> str:
    path = f"{x - 6:.1f},{y:.1f} {x:.1f},{y - 6:.1f} {x + 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f}"
    return f'<polygon class="line c{colour % NUM_COLOURS}" points="{path}"/>'
