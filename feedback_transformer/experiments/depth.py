"""Appendix, figure on depth at a constant number of parameters (char-PTB): heads and ReLU widen as layers go."""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.char_ptb import MATCH, REDUCED, ptb_run
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant

DEPTHS = {"smoke": (1, 4), "laptop": (1, 2, 4, 6), "paper": (1, 2, 3, 4, 5, 6)}
ATTENTION_CORES = ("feedback", "transformer")


def variants(scale: str) -> list[Variant]:
    return [variant(scale, core, depth) for core in ATTENTION_CORES for depth in DEPTHS[scale]]


def variant(scale: str, core: str, depth: int) -> Variant:
    """`depth` layers with the parameters of the preset's: head width and ReLU width inversely proportional."""
    model = ptb_run(scale, core).model
    shape = {}
    if depth != model.num_layers:
        wide = {"head_dim": model.head_dim, "ff_dim": model.ff_dim}
        shape = {name: str(size * model.num_layers // depth) for name, size in wide.items()} | {
            "num_layers": str(depth)
        }
    key = f"ptb-char/{core}" + (f"-{depth}-layers" if shape else "")
    label = f"{CORES[core]}, {depth} layer{'s' * (depth > 1)}"
    return Variant(key, label, ptb_run(scale, core, **shape), place=depth, line=core)


EXPERIMENT = Experiment(
    name="depth",
    title="Depth at a constant number of parameters, on char-PTB",
    where="Appendix, figure on depth, left",
    reduced=REDUCED.replace("4 layers for 6, ", ""),
    variants=variants,
    match=MATCH,
    axis="layers",
    claims=(
        Claim("the Transformer gets better with depth: 4 layers over 1",
              "ptb-char/transformer", "ptb-char/transformer-1-layers"),
        Claim("Feedback needs little depth: 2 layers as good as 4",
              "ptb-char/feedback-2-layers", "ptb-char/feedback", equal=True),
        Claim("with 2 layers Feedback beats the Transformer",
              "ptb-char/feedback-2-layers", "ptb-char/transformer-2-layers"),
        Claim("with 1 layer Feedback beats the Transformer",
              "ptb-char/feedback-1-layers", "ptb-char/transformer-1-layers"),
    ),
)  # fmt: skip
