"""Figure 5: what the memory is made of (char-PTB)."""

from __future__ import annotations

from feedback_transformer.experiments.char_ptb import MATCH, REDUCED, feedback, ptb_run, transformer
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant


def variants(scale: str) -> list[Variant]:
    return [
        feedback(scale),
        top_only(scale),
        Variant("ptb-char/recurrent", "recurrent", ptb_run(scale, memory="recurrent")),
        transformer(scale),
    ]


def top_only(scale: str) -> Variant:
    return Variant("ptb-char/top", "top only", ptb_run(scale, memory="top"))


EXPERIMENT = Experiment(
    name="memory-composition",
    title="Memory composition on char-PTB",
    where="Figure 5",
    reduced=REDUCED,
    variants=variants,
    match=MATCH,
    claims=lambda _: (
        Claim("the weighted sum is better than recurrent memory", "ptb-char/feedback", "ptb-char/recurrent"),
        Claim("top-only memory closely matches the weighted sum", "ptb-char/top", "ptb-char/feedback", equal=True),
        Claim("top-only memory is better than recurrent memory", "ptb-char/top", "ptb-char/recurrent"),
        Claim("the weighted sum is better than the previous layer", "ptb-char/feedback", "ptb-char/transformer"),
    ),
)
