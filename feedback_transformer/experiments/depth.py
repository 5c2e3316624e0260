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
    label = f"{CORES[core]}, {depth} layer{'s' * (depth > 1)}"
    return Variant(key_of(scale, core, depth), label, ptb_run(scale, core, **shape), place=depth, line=core)


def key_of(scale: str, core: str, depth: int) -> str:
    """The preset's depth has no number: other experiments have it too."""
    return f"ptb-char/{core}" + (f"-{depth}-layers" if depth != ptb_run(scale).model.num_layers else "")


def claims(scale: str) -> tuple[Claim, ...]:
    deep = ptb_run(scale).model.num_layers

    def keys(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, str]:
        return key_of(scale, *one), key_of(scale, *other)

    return (
        Claim(f"the Transformer gets better with depth: {deep} layers over 1",
              *keys(("transformer", deep), ("transformer", 1))),
        Claim(f"Feedback needs little depth: 2 layers as good as {deep}",
              *keys(("feedback", 2), ("feedback", deep)), equal=True),
        Claim("with 2 layers Feedback beats the Transformer", *keys(("feedback", 2), ("transformer", 2))),
        Claim("with 1 layer Feedback beats the Transformer", *keys(("feedback", 1), ("transformer", 1))),
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="depth",
    title="Depth at a constant number of parameters, on char-PTB",
    where="Appendix, figure on depth, left",
    reduced=REDUCED.replace("4 layers for 6, ", ""),
    variants=variants,
    match=MATCH,
    axis="layers",
    claims=claims,
)
