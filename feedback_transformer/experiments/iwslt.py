"""Appendix, Figure 7 (left): BLEU on IWSLT14 De-En over the depth of the decoder."""

from __future__ import annotations

from feedback_transformer.experiments.experiment import Experiment, Variant
from feedback_transformer.experiments.translation import (
    LEAST,
    PREPARE,
    SMALL_PAIR_MODEL,
    SPEEDS,
    depth_claims,
    over_depth,
)

DEPTHS = {"smoke": (1,), "laptop": (1, 2, 4, 6), "paper": (1, 2, 4, 6)}


def variants(scale: str) -> list[Variant]:
    return over_depth("iwslt14-deen", scale, DEPTHS[scale], {}, repeated=(1,))


EXPERIMENT = Experiment(
    name="iwslt",
    title="Translation: BLEU on IWSLT14 De-En over the depth of the decoder",
    where="Appendix, Figure 7 (left)",
    reduced=f"23,387 of 160,239 pairs, {SMALL_PAIR_MODEL}, the first 1,500 sentences of the test set, "
    f"one seed where there are several decoder layers; {SPEEDS}",
    one_machine=False,
    prepare=PREPARE["iwslt14-deen"],
    variants=variants,
    axis="decoder layers",
    least=LEAST,
    claims=lambda scale: depth_claims("iwslt14-deen", DEPTHS[scale], ours=True, deepest_ours=True),
)
