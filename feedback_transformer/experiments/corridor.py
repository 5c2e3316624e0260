"""Figure 3: success in the corridor over the size of the memory (section 4.1.1)."""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant
from feedback_transformer.presets import preset

# Memory sizes for each corridor length, some below it and some above.
MEMORIES: dict[str, dict[int, tuple[int, ...]]] = {
    "smoke": {3: (2, 4)},
    "laptop": {30: (2, 4, 8, 16, 64), 100: (4, 128)},
    "paper": {100: (1, 2, 5, 10, 20, 50, 100, 200)},
}
LONG = ("length=35", "length=60")  # further stages on the way to 100 steps
# length, small memory, large memory
COMPARED = {"smoke": [(3, 2, 4)], "laptop": [(30, 2, 64), (100, 4, 128)], "paper": [(100, 5, 200)]}


def variants(scale: str) -> list[Variant]:
    return [
        variant(scale, core, length, memory)
        for length, memories in MEMORIES[scale].items()
        for core in ("feedback", "transformer")
        for memory in memories
    ]


def variant(scale: str, core: str, length: int, memory: int) -> Variant:
    fields = {"length": str(length), "memory_size": str(memory)}
    if scale != "smoke":
        fields["bptt"] = str(length + 10)  # the gradient must reach from the doors to the object
    run = preset("corridor", scale, core)
    if scale == "laptop" and length == 100:
        fields["curriculum"] = ";".join([*run.train.curriculum, *LONG])
    name = f"{CORES[core]}, length {length}"
    return Variant(
        f"corridor/{core}-{length}-{memory}",
        f"{name}, memory {memory}",
        run.override(fields),
        place=memory,
        line=name,
    )


def claims(scale: str) -> tuple[Claim, ...]:
    return tuple(claim for case in COMPARED[scale] for claim in claims_at(*case))


def claims_at(length: int, small: int, large: int) -> tuple[Claim, ...]:
    """What the figure says, for corridors of one length."""
    feedback, transformer = (f"corridor/{core}-{length}" for core in ("feedback", "transformer"))
    smaller = f"as the memory shrinks ({length} steps)"
    return (
        Claim(
            f"Feedback is better where the memory is small ({length} steps)",
            f"{feedback}-{small}", f"{transformer}-{small}",
        ),
        Claim(f"Feedback keeps its performance {smaller}", f"{feedback}-{small}", f"{feedback}-{large}", equal=True),
        Claim(f"the Transformer degrades {smaller}", f"{transformer}-{large}", f"{transformer}-{small}"),
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="corridor",
    title="Corridor: success against memory size",
    where="Section 4.1.1, Figure 3",
    reduced="0.1M parameters, corridors of 30 and 100 steps (the paper gives no length) after a curriculum of 3, 6, "
    "12 and 20 (and 35 and 60), 1.5M and 4.2M frames",
    variants=variants,
    claims=claims,
    axis="memory size",
    endings=True,
)
