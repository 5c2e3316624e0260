"""An experiment's records as a table, a list of claims with verdicts, and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feedback_transformer.config import CORES
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Experiment, Record, Score, Variant, verdict
from feedback_transformer.report.figures import COLOURS, new_figure, save_figure
from feedback_transformer.report.tables import markdown_table

UNITS = {"bits": "bits", "perplexity": "perplexity", "accuracy": "accuracy"}
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


class Outcome:
    """What is known of an experiment at a scale."""

    def __init__(self, experiment: Experiment, scale: str, results: Path) -> None:
        self.experiment, self.scale = experiment, scale
        self.variants = experiment.variants(scale)
        self.records: dict[str, list[Record]] = {v.key: v.records(results) for v in self.variants}
        self.metric = next((metric_of(r[0]) for r in self.records.values() if r), "score")

    def score(self, key: str) -> Score | None:
        values = tuple(record["test"][self.metric] for record in self.records.get(key, []))
        return Score(values) if values else None

    @property
    def lower_is_better(self) -> bool:
        return self.metric != "accuracy"

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The header and a row a variant."""
        with_paper = any(variant.paper is not None for variant in self.variants)
        reduced = ", reduced" if self.scale != "paper" else ""
        header = ["model", "parameters", "tokens", "minutes", "seeds", f"test {self.metric}{reduced}"]
        header += ["paper, full scale"] if with_paper else []
        return header, [self._row(variant, with_paper) for variant in self.variants]

    def _row(self, variant: Variant, with_paper: bool) -> list[str]:
        records, score = self.records[variant.key], self.score(variant.key)
        if not score:
            row = [variant.label, "-", "-", "-", "0", "not run"]
        else:
            minutes = sum(record["cpu_seconds"] for record in records) / len(records) / 60
            row = [variant.label, f"{records[0]['parameters']:,}", f"{records[0]['tokens']:,}", f"{minutes:.1f}"]
            row += [str(len(records)), show(score)]
        paper = "-" if variant.paper is None else f"{variant.paper:g}"
        return row + ([paper] if with_paper else [])

    def claims(self) -> list[tuple[str, str]]:
        """The paper's claims, and whether they held."""
        answers = []
        for claim in self.experiment.claims:
            better, worse = self.score(claim.better), self.score(claim.worse)
            known = better is not None and worse is not None
            said = verdict(claim, better, worse, self.lower_is_better) if known else "not run"  # type: ignore[arg-type]
            numbers = f" ({better.mean:.4g} against {worse.mean:.4g})" if known else ""  # type: ignore[union-attr]
            answers.append((claim.words, said + numbers))
        return answers

    def markdown(self) -> str:
        """Both tables, and the command that makes them again."""
        claims = markdown_table(["the paper's claim", "here"], [list(pair) for pair in self.claims()])
        command = f"`feedback-transformer reproduce {self.experiment.name}`"
        reduced = f"Reduced: {self.experiment.reduced}. " if self.scale != "paper" else ""
        note = f"{reduced}Minutes are of one core, a run. Made by {command}."
        return "\n\n".join([markdown_table(*self.rows()), note, claims])


def metric_of(record: Record) -> str:
    return next(name for name in UNITS if name in record["test"])


def show(score: Score) -> str:
    spread = f" ± {score.spread:.3f}" if len(score.values) > 1 else ""
    return f"{score.mean:.3f}{spread}"


def experiment_tables(results: Path) -> dict[str, str]:
    """Of every experiment, as its place in a document wants it."""
    return {name: Outcome(experiment, "laptop", results).markdown() for name, experiment in EXPERIMENTS.items()}


def draw_all(results: Path) -> None:
    """The figure of every experiment that has records."""
    for name, experiment in EXPERIMENTS.items():
        draw(Outcome(experiment, "laptop", results), results / f"{name}.png")


def draw(outcome: Outcome, path: Path) -> bool:
    """The figure; False while there is nothing to draw."""
    known = [variant for variant in outcome.variants if outcome.records[variant.key]]
    if not known:
        return False
    if outcome.experiment.axis:
        figure, axes = new_figure(1)
        _draw_by_place(axes[0], outcome, known)
    else:
        figure, axes = new_figure(2)
        colours = colours_of(known)
        _draw_curves(axes[0], outcome, known, colours)
        _draw_scores(axes[1], outcome, known, colours)
    reduced = ", reduced" if outcome.scale != "paper" else ""
    figure.suptitle(f"{outcome.experiment.title}{reduced}")
    save_figure(figure, path)
    return True


def colours_of(variants: list[Variant]) -> dict[str, str]:
    """A colour for each; cores keep their own where each is alone."""
    cores = [variant.run.model.core for variant in variants]
    if len(set(cores)) == len(cores):
        return {variant.key: COLOURS[core] for variant, core in zip(variants, cores, strict=True)}
    return {variant.key: LINES[i % len(LINES)] for i, variant in enumerate(variants)}


def _draw_curves(axes: Any, outcome: Outcome, known: list[Variant], colours: dict[str, str]) -> None:
    for variant in known:
        for number, record in enumerate(outcome.records[variant.key]):
            points = [(p["tokens"] / 1e6, p[outcome.metric]) for p in record["curve"]]
            label = variant.label if number == 0 else None
            axes.plot(*zip(*points, strict=True), color=colours[variant.key], label=label, alpha=0.8, linewidth=1.3)
    late = [p[outcome.metric] for v in known for r in outcome.records[v.key] for p in r["curve"][1:]]
    if late:  # the first evaluation would flatten all others
        axes.set_ylim(min(late) - 0.05 * (max(late) - min(late)), max(late))
    axes.set(xlabel="training tokens (millions)", ylabel=f"validation {outcome.metric}", title="Learning, every seed")
    axes.legend(frameon=False, fontsize=8)


def _draw_scores(axes: Any, outcome: Outcome, known: list[Variant], colours: dict[str, str]) -> None:
    for place, variant in enumerate(known):
        score = outcome.score(variant.key)
        assert score is not None
        axes.plot(score.values, [place] * len(score.values), "o", color=colours[variant.key], alpha=0.5)
        axes.plot([score.mean], [place], "|", color=colours[variant.key], markersize=22, markeredgewidth=2.5)
    axes.set_yticks(range(len(known)), labels=[variant.label for variant in known])
    axes.invert_yaxis()
    better = "further left" if outcome.lower_is_better else "further right"
    axes.set(xlabel=f"test {outcome.metric}, {better} is better", title="After training: seeds and their mean")
    axes.margins(y=0.15)


def _draw_by_place(axes: Any, outcome: Outcome, known: list[Variant]) -> None:
    for line in dict.fromkeys(variant.line for variant in known):
        own = [variant for variant in known if variant.line == line]
        scores = [outcome.score(variant.key) for variant in own]
        places = [variant.place for variant in own]
        means = [score.mean for score in scores if score]
        axes.plot(places, means, color=COLOURS[line], label=CORES[line], linewidth=2)
        for place, score in zip(places, scores, strict=True):
            assert score is not None
            axes.plot([place] * len(score.values), score.values, "o", color=COLOURS[line], alpha=0.5)
    axes.set(xlabel=outcome.experiment.axis, ylabel=f"test {outcome.metric}")
    axes.set_xticks(sorted({variant.place for variant in known if variant.place is not None}))
    axes.legend(frameon=False)
