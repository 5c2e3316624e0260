"""An experiment's records as a figure: scores over its axis, or final scores if it has none; and learning curves."""

from __future__ import annotations

import itertools
from pathlib import Path

from feedback_transformer.config import CORES
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Variant
from feedback_transformer.report.experiments import SPEED, Outcome
from feedback_transformer.report.svg import NUM_COLOURS, Chart, Row, Series, dot_chart, line_chart, standalone

ORACLE = 6  # its colour
RECURRING = {"transformer-4": 1, "transformer-8": 3, "feedback-longer": 5, "transformer-4-longer": 4, "top": 9}
OTHERS = (3, 4, 5, 8, 9, 7, 6)  # for the rest, in this order
THIN, MEDIUM, THICK = 1.0, 1.8, 3.6  # lines


def charts(outcome: Outcome) -> list[Chart]:
    """The figure's panels: scores over its axis, or final scores if it has none; and the learning curves."""
    known = [variant for variant in outcome.variants if outcome.records[variant.key]]
    if not known:
        return []
    placed = [variant for variant in known if variant.place is not None]
    if not placed:
        colours = colours_of(known)
        return [_learning(outcome, known, colours), _ends(outcome, known, colours)]
    speed = SPEED in outcome.beside()
    lines = list(dict.fromkeys(variant.line or variant.label for variant in (*placed, *known)))
    panels = [_by_place(outcome, placed, metric) for metric in (outcome.metric, *([SPEED] if speed else []))]
    return [*panels, _learning(outcome, known, {v.key: lines.index(v.line or v.label) for v in known})]


def _learning(outcome: Outcome, known: list[Variant], colours: dict[str, int]) -> Chart:
    lines, places = [], sorted({variant.place for variant in known if variant.place is not None})
    for variant in known:
        width = THIN + (THICK - THIN) * places.index(variant.place) / len(places) if variant.place in places else MEDIUM
        for record in outcome.records[variant.key]:
            points = [(point["tokens"] / 1e6, point[outcome.metric]) for point in record["curve"]]
            later = points[1:] if len(points) > 2 else points  # the first point would flatten the rest
            name, own_name = _name(outcome, variant), f"{variant.label}, seed {record['run']['seed']}"
            lines.append(Series(name, colours[variant.key], later, width=width, own_name=own_name))
    told = (record.get("bounds", {}) for variant in known for record in outcome.records[variant.key])
    if levels := [bounds["oracle"] for bounds in told if "oracle" in bounds]:
        xs, level = [x for line in lines for x, _ in line.points], sum(levels) / len(levels)
        lines.append(Series("oracle", ORACLE, [(min(xs), level), (max(xs), level)]))
    thicker = f"; line thickness: {outcome.experiment.axis}" if len(places) > 1 else ""
    x_label = f"training {outcome.unit()} (millions){thicker}"
    return line_chart(lines, x_label, f"validation {outcome.metric.replace('_', ' ')}")


def _ends(outcome: Outcome, known: list[Variant], colours: dict[str, int]) -> Chart:
    values = {v.key: [outcome.value(record, outcome.metric) for record in outcome.records[v.key]] for v in known}
    rows = [Row(v.label, colours[v.key], values[v.key], v.published(outcome.metric)) for v in known]
    better = "lower" if outcome.lower_is_better else "higher"
    return dot_chart(rows, f"{outcome.split} {outcome.metric.replace('_', ' ')}, {better} is better")


def _by_place(outcome: Outcome, known: list[Variant], metric: str) -> Chart:
    lines = []
    for number, name in enumerate(dict.fromkeys(variant.line for variant in known)):
        own = [variant for variant in known if variant.line == name]
        scores = [(v.place, [outcome.value(record, metric) for record in outcome.records[v.key]]) for v in own]
        dots = [(place, value) for place, values in scores for value in values]
        means = [(place, sum(values) / len(values)) for place, values in scores]
        lines.append(Series(_name(outcome, own[0]), number, dots, dots=True))  # type: ignore[arg-type]
        lines.append(Series(_name(outcome, own[0]), number, means))  # type: ignore[arg-type]
    label = f"{outcome.split} {metric.replace('_', ' ')}; one dot per seed"
    return line_chart(lines, outcome.experiment.axis, label, by_place=True)


def _name(outcome: Outcome, variant: Variant) -> str:
    """Its name in a legend: that of its line, if it is on one."""
    return CORES.get(variant.line, variant.line) if variant.line else variant.label


def colours_of(variants: list[Variant]) -> dict[str, int]:
    """A colour of its own for each variant; a core and what recurs in several figures have the same in all of them."""
    own = {label: number for number, label in enumerate(CORES.values())}
    known = {v.key: own.get(v.label, RECURRING.get(v.key.rpartition("/")[2])) for v in variants}
    others = (number for number in itertools.cycle((*OTHERS, *range(NUM_COLOURS))) if number not in known.values())
    return {key: next(others) if number is None else number for key, number in known.items()}


def experiment_table(name: str, results: Path) -> str:
    """Tables and figure, for a document in docs/."""
    outcome = Outcome(EXPERIMENTS[name], "laptop", results)
    drawn = f"\n\n![{outcome.experiment.title}](../results/{name}.svg)" if charts(outcome) else ""
    return outcome.markdown() + drawn


def draw_all(results: Path) -> None:
    """The figure of every experiment that has records."""
    for name, experiment in EXPERIMENTS.items():
        draw(Outcome(experiment, "laptop", results), results / f"{name}.svg")


def draw(outcome: Outcome, path: Path) -> bool:
    """The figure as a file; False while there is nothing to draw."""
    drawn = figure(outcome)
    if not drawn:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawn, encoding="utf-8")
    return True


def figure(outcome: Outcome) -> str:
    """The experiment's panels side by side, as SVG; empty while there is nothing to draw."""
    panels = charts(outcome)
    reduced = ", reduced" if outcome.scale != "paper" else ""
    return standalone(panels, f"{outcome.experiment.title}{reduced}") if panels else ""
