"""Not in the paper: BLEU on Multi30k over the depth of the decoder. It takes minutes where WMT takes days."""

from __future__ import annotations

from feedback_transformer.experiments.experiment import Experiment, Variant
from feedback_transformer.experiments.translation import LEAST, PREPARE, depth_claims, over_depth

DEPTHS = {"smoke": (1,), "laptop": (1, 2, 4, 6), "paper": ()}


def variants(scale: str) -> list[Variant]:
    return over_depth("multi30k", scale, DEPTHS[scale], {})


EXPERIMENT = Experiment(
    name="multi30k",
    title="Translation: BLEU on Multi30k over the depth of the decoder",
    where="",
    reduced="29,000 captions instead of the 4.5M pairs of WMT, width 96 instead of 1024 and 2 encoder layers instead "
    "of 6, one seed",
    prepare=PREPARE["multi30k"],
    variants=variants,
    axis="decoder layers",
    least=LEAST,
    claims=lambda scale: depth_claims("multi30k", DEPTHS[scale]),
)
