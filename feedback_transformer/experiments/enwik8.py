"""Table 4: bits per byte on enwik8, with adaptive spans."""

from __future__ import annotations

from feedback_transformer.experiments.char_ptb import LSTM_WIDTH, language_run
from feedback_transformer.experiments.experiment import Claim, Elsewhere, Experiment, Variant, seeds_at

LAPTOP = {"memory_size": "512", "adaptive_span": "true", "span_loss": "2e-5", "steps": "1000"}
BEST = "Compressive Transformer, 277M parameters, the best at the time"
XL = "Transformer-XL, 277M parameters"
LAPTOP_LSTM = {**LSTM_WIDTH, "steps": LAPTOP["steps"]}


def variants(scale: str) -> list[Variant]:
    fields, recurrent = (LAPTOP, LAPTOP_LSTM) if scale == "laptop" else ({}, {})
    seeds = seeds_at(scale)
    feedback, transformer = (language_run("enwik8", scale, core, **fields) for core in ("feedback", "transformer"))
    return [
        Variant("enwik8/feedback", "Feedback Transformer", feedback, paper=0.96, seeds=seeds),
        Variant("enwik8/transformer", "Transformer", transformer, seeds=seeds),
        Variant("enwik8/lstm", "LSTM", language_run("enwik8", scale, "lstm", **recurrent), seeds=seeds),
    ]


EXPERIMENT = Experiment(
    name="enwik8",
    title="Bytes: bits per byte on enwik8",
    where="Table 4",
    reduced="0.5M parameters instead of the paper's 77M, 4 layers instead of 12, adaptive spans of at most 512 instead "
    "of 8192, 2M bytes of training instead of 11G, one seed",
    variants=variants,
    scores=("bits",),
    elsewhere=(
        Elsewhere(BEST, {"bits": 0.97}, "Table 4 of the paper"),
        Elsewhere(XL, {"bits": 0.99}, "Table 4 of the paper"),
    ),
    claims=lambda _: (
        Claim("Feedback is better than the best model before it", "enwik8/feedback", BEST, published=True),
        Claim("Feedback is better than Transformer-XL", "enwik8/feedback", XL, published=True),
        Claim("Feedback is better than the Transformer", "enwik8/feedback", "enwik8/transformer", ours=True),
        Claim("Feedback is better than the LSTM", "enwik8/feedback", "enwik8/lstm", ours=True),
    ),
)
