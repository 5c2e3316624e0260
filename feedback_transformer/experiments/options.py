"""Appendix, Table 6, modelling choices: pre-norm with a higher rate, adaptive span, growing BPTT (WikiText).

The paper does not give the lower rate of post-norm: here it is a quarter of the other. At the paper's scale the layers
of Feedback share keys and values, as in its Table 3.
"""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.char_ptb import language_run
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant
from feedback_transformer.experiments.wikitext import corpus, shared

# core, pre-norm with a higher rate, adaptive span, growing BPTT: perplexity on the development set
PAPER = {
    ("transformer", False, False, False): 22.9,
    ("transformer", False, False, True): 22.9,
    ("transformer", True, False, True): 21.0,
    ("transformer", True, True, False): 20.6,
    ("feedback", False, False, False): 19.7,
    ("feedback", False, False, True): 19.9,
    ("feedback", True, False, True): 19.6,
    ("feedback", True, True, True): 19.0,
}
LONG = {"smoke": "64", "laptop": "256", "paper": "2048"}  # what the spans may grow to
LOWER_RATE = 0.25  # of the preset's, for post-norm


def variants(scale: str) -> list[Variant]:
    return [variant(scale, *choices, paper) for choices, paper in PAPER.items()]


def variant(scale: str, core: str, pre_norm: bool, span: bool, growing: bool, paper: float) -> Variant:
    task = corpus(scale)
    base = language_run(task, scale, core)
    short = str(base.model.memory_size if scale != "paper" else 512)
    fields = {
        "norm": "pre" if pre_norm else "post",
        "learning_rate": str(base.train.learning_rate * (1 if pre_norm else LOWER_RATE)),
        "adaptive_span": str(span).lower(),
        "memory_size": LONG[scale] if span else short,
        "bptt_start": str(base.train.bptt // 2 if growing else 0),
        "finetune_steps": "0",
        **shared(scale, core),
    }
    if scale == "laptop":
        fields["steps"] = "534" if growing else "400"  # as many words: half of the blocks are half as long
        fields["span_loss"] = "1e-4" if span else "0"
    marks = [name for name, on in (("pre", pre_norm), ("span", span), ("grow", growing)) if on]
    words = [w for w, on in (("pre-norm + higher rate", pre_norm), ("span", span), ("growing BPTT", growing)) if on]
    label = f"{CORES[core]}: {', '.join(words) or 'none'}"
    key = "-".join([f"wikitext/options-{core}", *marks])
    return Variant(key, label, language_run(task, scale, core, **fields), paper=paper)


def in_updates(scale: str) -> bool:
    """Whether rows learn for as many updates, as in the paper, or from as many words."""
    return scale == "paper"


BASE = "wikitext/options-"
EXPERIMENT = Experiment(
    name="options",
    title="Modelling choices, on WikiText",
    where="Appendix, Table 6",
    reduced="WikiText-2 instead of WikiText-103, about 1M parameters instead of 138M (Feedback: 124M), 64 memories "
    "(256 with spans) instead of 512 (2048), 0.8M words of training instead of 26G (in more updates where BPTT grows: "
    "the paper compares after as many updates, which are fewer words), the first 100,000 words of the development set. "
    "As in the paper's table, BPTT does not grow for the Transformer with spans",
    variants=variants,
    development=True,
    claims=lambda scale: (
        Claim("pre-norm with a higher rate helps the Transformer",
              f"{BASE}transformer-pre-grow", f"{BASE}transformer-grow"),
        Claim("pre-norm with a higher rate helps Feedback", f"{BASE}feedback-pre-grow", f"{BASE}feedback-grow"),
        Claim("pre-norm with a higher rate helps the Transformer more than Feedback",
              f"{BASE}transformer-pre-grow", f"{BASE}transformer-grow",
              than=(f"{BASE}feedback-pre-grow", f"{BASE}feedback-grow")),
        Claim("adaptive span helps the Transformer", f"{BASE}transformer-pre-span", f"{BASE}transformer-pre-grow",
              unequal=in_updates(scale)),
        Claim("adaptive span helps Feedback", f"{BASE}feedback-pre-span-grow", f"{BASE}feedback-pre-grow"),
        Claim("growing BPTT does not cost the Transformer anything", f"{BASE}transformer-grow", f"{BASE}transformer",
              equal=True, or_better=True, unequal=in_updates(scale)),
        Claim("growing BPTT does not cost Feedback anything", f"{BASE}feedback-grow", f"{BASE}feedback", equal=True,
              or_better=True, unequal=in_updates(scale)),
        Claim("without any of them Feedback is better than the Transformer", f"{BASE}feedback", f"{BASE}transformer"),
        Claim("with pre-norm Feedback is better than the Transformer",
              f"{BASE}feedback-pre-grow", f"{BASE}transformer-pre-grow"),
        Claim("with adaptive span Feedback is better than the Transformer",
              f"{BASE}feedback-pre-span-grow", f"{BASE}transformer-pre-span", unequal=in_updates(scale)),
    ),
)  # fmt: skip
