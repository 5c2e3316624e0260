"""What the paper's own scale would cost, from the costs that `reproduce NAME --scale paper --measure` keeps."""

from __future__ import annotations

from pathlib import Path

from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.costing import known_costs

HEADS = ["experiment", "runs", "parameters, at most", "updates, at most", "core-days of all runs"]


def cost_rows(results: Path) -> list[list[str]]:
    """One row per experiment whose models were built and stepped at full size; a run that experiments share counts in
    each."""
    rows = []
    for experiment in EXPERIMENTS.values():
        variants = experiment.variants("paper")
        costs = known_costs(variants, results)
        known = [(variant, costs[variant.key]) for variant in variants if variant.key in costs]
        if not known:
            continue
        runs = sum(len(variant.seeds) for variant, _ in known)
        days = sum(len(variant.seeds) * cost.minutes for variant, cost in known) / 1440
        some = "" if len(known) == len(variants) else f" ({len(known)} of {len(variants)} models)"
        largest, longest = max(cost.parameters for _, cost in known), max(cost.updates for _, cost in known)
        rows.append([f"{experiment.name}{some}", str(runs), f"{largest:,}", f"{longest:,}", f"{days:,.1f}"])
    return rows
