"""Figure 4 (right): maze navigation by A2C (section 4.2.2)."""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.experiment import SEEDS, Claim, Experiment, Variant
from feedback_transformer.presets import preset
from feedback_transformer.presets.worlds import PAPER_LSTMS

PAPER_TRIALS = tuple(range(10))  # of the mazes


def world_experiment(task: str, title: str, where: str, reduced: str) -> Experiment:
    """Three cores in one world: their learning curves and final rewards, with the oracle's."""

    def variants(scale: str) -> list[Variant]:
        runs = {core: preset(task, scale, core) for core in CORES}
        if scale == "paper":
            runs["lstm"] = runs["lstm"].override(PAPER_LSTMS[task])
        seeds = PAPER_TRIALS if scale == "paper" else SEEDS
        return [Variant(f"{task}/{core}", CORES[core], run, seeds=seeds) for core, run in runs.items()]

    claims = (
        Claim("Feedback earns more than the Transformer", f"{task}/feedback", f"{task}/transformer"),
        # The LSTM is not in Figure 4.
        Claim("Feedback earns more than the LSTM", f"{task}/feedback", f"{task}/lstm", ours=task == "maze"),
    )
    return Experiment(task, title, where, reduced, variants, lambda _: claims)


SMALL_MAZE = (
    "5 x 5 mazes with 4 objects instead of 9 x 9 with 8, 100 steps instead of 200, 0.1M parameters (LSTM: 0.07M) "
    "instead of two layers of width 256 (LSTM: three), 5.1M frames, three seeds instead of ten"
)
EXPERIMENT = world_experiment("maze", "Maze navigation", "Section 4.2.2, Figure 4 (right)", SMALL_MAZE)
