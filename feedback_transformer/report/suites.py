"""Several experiments in one table: one row per score and one column per model, as in the paper; and our goals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.experiments.experiment import Variant
from feedback_transformer.report.experiments import Outcome, show
from feedback_transformer.report.tables import markdown_table

# Goals for Feedback within 90 minutes on one core, by score; where none is given, the paper's own numbers.
TOY_GOALS: tuple[tuple[str, str, dict[str, float]], ...] = (
    ("random-walk", "feedback-longer", {"accuracy": 0.995}),
    ("algorithmic-3", "feedback-longer", {"accuracy": 0.99}),
    ("algorithmic-5", "feedback", {"accuracy": 0.92}),
    ("counting-50", "feedback", {"sequence": 1.0}),
    ("counting-1k", "feedback", {}),
    ("copy", "feedback", {}),
    ("copy-pairs", "feedback", {}),
    ("reverse", "feedback-longer", {}),
    ("reverse-pairs", "feedback", {}),
)


ALIKE = 0.1  # numbers of tokens within a tenth of each other
LONGER = "-longer"  # at the end of a key: a row that trains on more tokens


def suite_table(name: str, results: Path) -> str:
    """The experiments of a group as a Markdown table."""
    return markdown_table(*suite_rows([Outcome(EXPERIMENTS[one], "laptop", results) for one in GROUPS[name]]))


def suite_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """The models that all experiments share or the paper reports: our scores and, in brackets, the paper's. What
    trains on more tokens has rows of its own."""
    counts = Counter(variant.label for outcome in outcomes for variant in outcome.variants)
    published = {variant.label for outcome in outcomes for variant in outcome.variants if variant.paper is not None}
    shown = [label for label, count in counts.items() if count == len(outcomes) or label in published]
    rows = []
    for outcome in outcomes:
        named = {variant.label: variant for variant in outcome.variants}
        keys = {variant.key: variant for variant in outcome.variants}
        longer = {label: keys[v.key + LONGER] for label, v in named.items() if v.key + LONGER in keys}
        for variants, more in ((named, ""), (longer, ", trained longer")):
            rows += [_suite_row(outcome, score, more, shown, variants) for score in outcome.scores if variants]
    return ["task, score", *shown], rows


def _suite_row(
    outcome: Outcome, score: str, more: str, shown: Sequence[str], variants: Mapping[str, Variant]
) -> list[str]:
    cells = [f"{outcome.experiment.name}, {score}{more}"]
    for label in shown:
        if label not in variants:
            cells.append("-")
            continue
        found, paper = outcome.score(variants[label].key, score), variants[label].published(score)
        ours = show(found) if found else "not run"
        cells.append(ours if paper is None else f"{ours} ({paper:g})")
    return cells


def toy_goals(results: Path) -> str:
    """The goals for Feedback in the toy tasks, and the scores measured so far."""
    rows = []
    for name, model, goals in TOY_GOALS:
        outcome, key = Outcome(EXPERIMENTS[name], "laptop", results), f"{name}/{model}"
        variants = {variant.key: variant for variant in outcome.variants}
        variant, published = variants[key], variants[key.removesuffix(LONGER)]
        for score in outcome.scores:
            goal = goals[score] if goals else published.published(score)
            assert goal is not None, "where we set no goal, the paper has a number"
            row = [f"{name}, {score}: {variant.label}", f"≥ {goal:g}"]
            found = outcome.score(key, score)
            if found is None:
                rows.append([*row, "not run", "0", "-", "-", "not run", "-"])
                continue
            tokens, seconds = (
                max(record[part] for record in outcome.records[key]) for part in ("tokens", "cpu_seconds")
            )
            cost = [f"{tokens / 1e6:.1f}M", f"{seconds / 60:.1f}"]
            reached = "reached" if found.mean >= goal else "not reached"
            measured = [show(found, digits=4), str(len(found.values)), *cost]
            rows.append([*row, *measured, reached, _others(outcome, key, score)])
    header = ["task, score: model", "goal", "measured", "seeds", "tokens", "minutes, at most", ""]
    return markdown_table([*header, "others from as many tokens"], rows)


def _others(outcome: Outcome, key: str, score: str) -> str:
    """What the other models score that have seen about as many tokens."""
    tokens = outcome.records[key][0]["tokens"]
    labels = {variant.key: variant.label for variant in outcome.variants}
    found = []
    for other, records in outcome.records.items():
        own = outcome.score(other, score)
        if own and other != key and abs(records[0]["tokens"] / tokens - 1) < ALIKE:
            found.append(f"{labels[other.removesuffix(LONGER)]} {show(own)}")
    return "; ".join(found) or "-"
