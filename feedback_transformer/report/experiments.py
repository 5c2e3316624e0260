"""An experiment's records as a table, a list of claims with verdicts, and a figure."""

from __future__ import annotations

from pathlib import Path

from feedback_transformer.config import CORES
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Experiment, Record, Score, Variant, verdict
from feedback_transformer.report.svg import Chart, Row, Series, dot_chart, line_chart, standalone
from feedback_transformer.report.tables import markdown_table

METRICS = ("bleu", "rougeL", "character", "bits", "perplexity", "accuracy", "success", "reward")  # a score: the first
BESIDE = {"sequence": "whole strings", "words_per_second": "words/s"}  # scores that have a column of their own
LOWER_IS_BETTER = ("bits", "perplexity")
ORACLE = 6  # its colour


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
        return self.metric in LOWER_IS_BETTER

    def cost_hours(self) -> float:
        """Of one core, all runs together."""
        return sum(record["cpu_seconds"] for records in self.records.values() for record in records) / 3600

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The header and a row a variant."""
        with_paper = any(variant.paper is not None for variant in self.variants)
        reduced = ", reduced" if self.scale != "paper" else ""
        header = ["model", "parameters", "tokens", "minutes", "seeds", f"test {self.metric}{reduced}"]
        header += self._beside().values()
        header += ["paper, full scale"] if with_paper else []
        return header, [self._row(variant, with_paper) for variant in self.variants]

    def _row(self, variant: Variant, with_paper: bool) -> list[str]:
        records, score = self.records[variant.key], self.score(variant.key)
        if not score:
            row = [variant.label, "-", "-", "-", "0", "not run", *("-" for _ in self._beside())]
        else:
            minutes = sum(record["cpu_seconds"] for record in records) / len(records) / 60
            row = [variant.label, f"{records[0]['parameters']:,}", f"{records[0]['tokens']:,}", f"{minutes:.1f}"]
            row += [str(len(records)), show(score)]
            for name in self._beside():
                row.append(f"{sum(record['test'][name] for record in records) / len(records):.3g}")
        paper = "-" if variant.paper is None else f"{variant.paper:g}"
        return row + ([paper] if with_paper else [])

    def _beside(self) -> dict[str, str]:
        """The other scores that its records have."""
        tests = [record["test"] for records in self.records.values() for record in records]
        return {name: title for name, title in BESIDE.items() if tests and all(name in test for test in tests)}

    def gap(self, better: str, worse: str) -> Score | None:
        """By how much one variant is better than another, seed by seed."""
        scores = [self.score(better), self.score(worse)]
        if scores[0] is None or scores[1] is None:
            return None
        sign = -1 if self.lower_is_better else 1
        return Score(tuple(sign * (a - b) for a, b in zip(scores[0].values, scores[1].values, strict=False)))

    def claims(self) -> list[tuple[str, str]]:
        """The paper's claims, and whether they held."""
        answers = []
        for claim in self.experiment.claims:
            better, worse, lower = self.score(claim.better), self.score(claim.worse), self.lower_is_better
            if claim.than is not None:
                better, worse, lower = self.gap(claim.better, claim.worse), self.gap(*claim.than), False
            known = better is not None and worse is not None
            said = verdict(claim, better, worse, lower) if known else "not run"  # type: ignore[arg-type]
            numbers = f" ({better.mean:.4g} against {worse.mean:.4g})" if known else ""  # type: ignore[union-attr]
            answers.append((claim.words, said + numbers))
        return answers

    def markdown(self) -> str:
        """Both tables, and the command that makes them again."""
        claims = markdown_table(["the paper's claim", "here"], [list(pair) for pair in self.claims()])
        command = f"`feedback-transformer reproduce {self.experiment.name}`"
        command = f"`{self.experiment.prepare_command}` and {command}" if self.experiment.prepare else command
        reduced = f"Reduced: {self.experiment.reduced}. " if self.scale != "paper" else ""
        note = f"{reduced}Minutes are of one core, a run. Made by {command}."
        return "\n\n".join([markdown_table(*self.rows()), note, claims])

    def charts(self) -> list[Chart]:
        """The figure's panels: over the axis it has, or how each learned and where it ended."""
        known = [variant for variant in self.variants if self.records[variant.key]]
        if not known:
            return []
        if self.experiment.axis:
            return [self._by_place([variant for variant in known if variant.place is not None])]
        colours = colours_of(known)
        return [self._learning(known, colours), self._ends(known, colours)]

    def _learning(self, known: list[Variant], colours: dict[str, int]) -> Chart:
        lines = []
        for variant in known:
            for record in self.records[variant.key]:
                points = [(point["tokens"] / 1e6, point[self.metric]) for point in record["curve"]]
                lines.append(
                    Series(variant.label, colours[variant.key], points[1:] if len(points) > 2 else points)
                )  # it flattens all
        bounds = [record["bounds"]["oracle"] for v in known for record in self.records[v.key] if "bounds" in record]
        if bounds:
            xs, level = [x for line in lines for x, _ in line.points], sum(bounds) / len(bounds)
            lines.append(Series("oracle", ORACLE, [(min(xs), level), (max(xs), level)]))
        unit = next((self.records[v.key][0].get("unit", "tokens") for v in known), "tokens")
        return line_chart(lines, f"training {unit} (millions)", f"validation {self.metric}")

    def _ends(self, known: list[Variant], colours: dict[str, int]) -> Chart:
        rows = [Row(v.label, colours[v.key], [r["test"][self.metric] for r in self.records[v.key]]) for v in known]
        better = "further left" if self.lower_is_better else "further right"
        return dot_chart(rows, f"test {self.metric}, {better} is better; a dot a seed, a bar at the mean")

    def _by_place(self, known: list[Variant]) -> Chart:
        lines = []
        for number, name in enumerate(dict.fromkeys(variant.line for variant in known)):
            own = [variant for variant in known if variant.line == name]
            for seed in range(max(len(self.records[variant.key]) for variant in own)):
                dots = [(v.place, r[seed]["test"][self.metric]) for v in own if len(r := self.records[v.key]) > seed]
                lines += [Series(CORES.get(name, name), number, [dot], dots=True) for dot in dots]  # type: ignore[list-item]
            means = [(variant.place, score.mean) for variant in own if (score := self.score(variant.key))]
            lines.append(Series(CORES.get(name, name), number, means))  # type: ignore[arg-type]
        return line_chart(lines, self.experiment.axis, f"test {self.metric}; a dot a seed")


def colours_of(variants: list[Variant]) -> dict[str, int]:
    """A colour for each; cores keep their own where each is alone."""
    cores = [variant.run.model.core for variant in variants]
    alone = len(set(cores)) == len(cores)
    return {
        v.key: list(CORES).index(core) if alone else i for i, (v, core) in enumerate(zip(variants, cores, strict=True))
    }


def metric_of(record: Record) -> str:
    return next(name for name in METRICS if name in record["test"])


def show(score: Score) -> str:
    spread = f" ± {score.spread:.3f}" if len(score.values) > 1 else ""
    return f"{score.mean:.3f}{spread}"


def experiment_tables(results: Path) -> dict[str, str]:
    """Of every experiment, as its place in a document wants it."""
    return {name: Outcome(experiment, "laptop", results).markdown() for name, experiment in EXPERIMENTS.items()}


def draw_all(results: Path) -> None:
    """The figure of every experiment that has records."""
    for name, experiment in EXPERIMENTS.items():
        draw(Outcome(experiment, "laptop", results), results / f"{name}.svg")


def draw(outcome: Outcome, path: Path) -> bool:
    """The figure as a file; False while there is nothing to draw."""
    charts = outcome.charts()
    if not charts:
        return False
    reduced = ", reduced" if outcome.scale != "paper" else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standalone(charts, f"{outcome.experiment.title}{reduced}"))
    return True
