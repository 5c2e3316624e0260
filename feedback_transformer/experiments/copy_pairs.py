"""Table 1, copy and reverse, with an encoder: digits are read as a whole, then written, at ten times the length.

The paper does not say how the digits were read. With an encoder, what is left to the decoder is to know where it is.
"""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant
from feedback_transformer.experiments.toy_tasks import CHANCE
from feedback_transformer.presets import preset

PAPER = {  # the parts of characters and of whole strings that are right
    ("copy", "feedback"): (0.762, 0.236),
    ("copy", "transformer"): (0.591, 0.062),
    ("reverse", "feedback"): (0.748, 0.292),
    ("reverse", "transformer"): (0.502, 0.059),
}


def variants(scale: str) -> list[Variant]:
    return [
        Variant(
            f"{task}-pairs/{core}",
            f"{CORES[core]}, {task} (whole strings in the paper: {strings:.1%})",
            preset(f"{task}-pairs", scale, core),
            paper=characters,
            seeds=(0,),
        )
        for (task, core), (characters, strings) in PAPER.items()
    ]


EXPERIMENT = Experiment(
    name="copy-pairs",
    title="Copy and reverse with an encoder: characters right at ten times the length",
    where="Section 4.1.1, Table 1",
    reduced="models of 0.2M parameters and fresh strings, one seed",
    variants=variants,
    claims=tuple(
        Claim(
            f"{task}: Feedback beats the Transformer",
            f"{task}-pairs/feedback",
            f"{task}-pairs/transformer",
            chance=CHANCE["character"],
        )
        for task in ("copy", "reverse")
    ),
)
