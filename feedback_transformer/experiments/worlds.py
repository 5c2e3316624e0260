"""Reinforcement learning (sections 4.1.1 and 4.2.2, appendix): corridor, maze navigation, maze easy, water maze."""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.experiment import SEEDS, Claim, Experiment, Variant
from feedback_transformer.presets import preset
from feedback_transformer.presets.worlds import PAPER_LSTMS

# Memory sizes for each corridor length, some below it and some above.
MEMORIES: dict[str, dict[int, tuple[int, ...]]] = {
    "smoke": {3: (2, 4)},
    "laptop": {30: (2, 4, 8, 16, 64), 100: (4, 128)},
    "paper": {100: (1, 2, 5, 10, 20, 50, 100, 200)},
}
COMPARED = {"smoke": (3, 2, 4), "laptop": (30, 4, 64), "paper": (100, 5, 200)}  # length, small memory, large memory

PAPER_TRIALS = tuple(range(10))  # of the mazes


def corridor_variants(scale: str) -> list[Variant]:
    return [
        corridor_variant(scale, core, length, memory)
        for length, memories in MEMORIES[scale].items()
        for core in ("feedback", "transformer")
        for memory in memories
    ]


def corridor_variant(scale: str, core: str, length: int, memory: int) -> Variant:
    fields = {"length": str(length), "memory_size": str(memory)}
    if scale != "smoke":
        fields["bptt"] = str(length + 10)  # the gradient must reach from the doors to the object
    name = f"{CORES[core]}, length {length}"
    run = preset("corridor", scale, core).override(fields)
    seeds = (0,) if scale == "laptop" and length == 100 else SEEDS
    return Variant(
        f"corridor/{core}-{length}-{memory}", f"{name}, memory {memory}", run, place=memory, line=name, seeds=seeds
    )


def corridor_claims(scale: str) -> tuple[Claim, ...]:
    length, small, large = COMPARED[scale]
    feedback, transformer = (f"corridor/{core}-{length}" for core in ("feedback", "transformer"))
    return (
        Claim("Feedback is better where the memory is small", f"{feedback}-{small}", f"{transformer}-{small}"),
        Claim(
            "Feedback keeps its performance as the memory shrinks",
            f"{feedback}-{small}", f"{feedback}-{large}", equal=True,
        ),
        Claim("the Transformer degrades as the memory shrinks", f"{transformer}-{large}", f"{transformer}-{small}"),
    )  # fmt: skip


CORRIDOR = Experiment(
    name="corridor",
    title="Corridor: success against memory size",
    where="Section 4.1.1, Figure 3",
    reduced="0.1M parameters, corridors of 30 and 100 steps (the paper gives no length) after a curriculum of 3, 10 "
    "and 18, 1.0M to 2.8M frames, one seed at length 100",
    variants=corridor_variants,
    claims=corridor_claims,
    axis="memory size",
    endings=True,
)


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
MAZE = world_experiment("maze", "Maze navigation", "Section 4.2.2, Figure 4 (right)", SMALL_MAZE)
MAZE_EASY = world_experiment("maze-easy", "Maze navigation, easy", "Appendix, Figure 6 (left)", SMALL_MAZE)
WATER_MAZE = world_experiment(
    "water-maze", "Water maze", "Appendix, Figure 6 (right)",
    "5 x 5 cells instead of 15 x 15, 50 steps instead of 200, 0.1M parameters (LSTM: 0.07M), 5.1M frames instead of "
    "500M, three seeds instead of ten",
)  # fmt: skip

EXPERIMENTS = (CORRIDOR, MAZE, MAZE_EASY, WATER_MAZE)
