"""Appendix, Figure 7 (right): ROUGE-L on CNN-DailyMail over the depth of the decoder."""

from __future__ import annotations

from feedback_transformer.experiments.experiment import Experiment, Variant
from feedback_transformer.experiments.translation import (
    AFTERWARDS,
    PREPARE,
    SMALL_PAIR_MODEL,
    depth_claims,
    over_depth,
)

UNTAUGHT = 17.0  # ROUGE-L: above what frequent words get, whatever the article (every new record's `bounds`)
DEPTHS = {"smoke": (1,), "laptop": (1, 2, 4), "paper": (1, 2, 4, 6)}


def variants(scale: str) -> list[Variant]:
    return over_depth("cnn-dailymail", scale, DEPTHS[scale], {})


EXPERIMENT = Experiment(
    name="summarization",
    title="Summarization: ROUGE-L on CNN-DailyMail over the depth of the decoder",
    where="Appendix, Figure 7 (right)",
    reduced="39,160 of 287,113 articles, biased towards shorter ones, the first 120 words of each instead of 400, "
    f"1, 2 and 4 decoder layers instead of 1 to 6, {SMALL_PAIR_MODEL}, the first 300 articles of the test set, one "
    "seed",
    afterwards=f"{AFTERWARDS}`feedback-transformer tune RUN shortest=30,50,70`, then `evaluate RUN`",
    prepare=PREPARE["cnn-dailymail"],
    variants=variants,
    axis="decoder layers",
    least=1.0,  # ROUGE over 300 articles
    claims=lambda scale: depth_claims("cnn-dailymail", DEPTHS[scale], ours=True, chance=UNTAUGHT),
)
