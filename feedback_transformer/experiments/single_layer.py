"""Appendix, Figure 8 (char-PTB): which layer makes the best memory?"""

from __future__ import annotations

from feedback_transformer.experiments.char_ptb import MATCH, REDUCED, feedback, ptb_run, transformer
from feedback_transformer.experiments.experiment import Claim, Experiment, Variant
from feedback_transformer.experiments.memory_composition import top_only


def variants(scale: str) -> list[Variant]:
    layers = ptb_run(scale).model.num_layers
    single = [layer(scale, index) for index in range(1, layers)]
    average = Variant("ptb-char/average", "average of all", ptb_run(scale, memory="average"))
    return [*single, top_only(scale), average, feedback(scale), transformer(scale)]


def layer(scale: str, index: int) -> Variant:
    return Variant(f"ptb-char/layer-{index}", f"layer {index} only", ptb_run(scale, memory=f"layer:{index}"))


EXPERIMENT = Experiment(
    name="single-layer",
    title="A single layer as memory, on char-PTB",
    where="Appendix, Figure 8",
    reduced=REDUCED,
    variants=variants,
    match=MATCH,
    claims=lambda _: (
        Claim("a higher layer makes a better memory: top over first", "ptb-char/top", "ptb-char/layer-1"),
        Claim("the first layer works as well as a Transformer", "ptb-char/layer-1", "ptb-char/transformer", equal=True),
        Claim("the weighted sum matches the top layer", "ptb-char/feedback", "ptb-char/top", equal=True),
        Claim("averaging all layers works about as well", "ptb-char/average", "ptb-char/feedback", equal=True),
    ),
)
