"""Appendix, Figure 9: depth at a constant number of parameters: with fewer layers, heads and feed-forward are wider.

Left: characters (char-PTB). Right: words (WikiText-103 at the paper's scale, WikiText-2 on a laptop).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from feedback_transformer.config import CORES
from feedback_transformer.experiments import wikitext
from feedback_transformer.experiments.char_ptb import LAYERS, MATCH, REDUCED, language_run, ptb_run
from feedback_transformer.experiments.experiment import SEEDS, Claim, Experiment, Variant
from feedback_transformer.training.run import RunConfig

ATTENTION_CORES = ("feedback", "transformer")
Depths = Mapping[str, tuple[int, ...]]


class Panel(NamedTuple):
    """One half of the figure: its run for a core, its depths by scale, and the folder of its records."""

    run: Callable[..., RunConfig]
    depths: Depths
    folder: str
    shared: tuple[str, ...]  # scales at which other experiments have the preset's depth too
    seeds: tuple[int, ...]  # on a laptop
    one_seed: tuple[tuple[str, int], ...]  # cores and depths that have only the first of them

    def variants(self, scale: str) -> list[Variant]:
        return [self.variant(scale, core, depth) for core in ATTENTION_CORES for depth in self.depths[scale]]

    def variant(self, scale: str, core: str, depth: int) -> Variant:
        """`depth` layers with the preset's number of parameters: head and ReLU widths are inverse to the depth."""
        model, shape = self.run(scale, core).model, {}
        seeds = self.seeds if scale == "laptop" else SEEDS
        if scale == "laptop" and (core, depth) in self.one_seed:
            seeds = seeds[:1]
        if depth != model.num_layers:
            wide = {"head_dim": model.head_dim, "ff_dim": model.ff_dim}
            shape = {name: str(size * model.num_layers // depth) for name, size in wide.items()}
            shape["num_layers"] = str(depth)
        label = f"{CORES[core]}, {depth} layer{'s' * (depth > 1)}"
        run = self.run(scale, core, **shape)
        return Variant(self.key(scale, core, depth), label, run, place=depth, line=core, seeds=seeds)

    def key(self, scale: str, core: str, depth: int) -> str:
        """The records' key; a variant shared with other experiments has no depth in its key."""
        theirs = scale in self.shared and depth == self.preset_depth(scale)
        return f"{self.folder}/{core}" + ("" if theirs else f"-{depth}-layers")

    def preset_depth(self, scale: str) -> int:
        return self.run(scale).model.num_layers

    def claims(self, scale: str) -> tuple[Claim, ...]:
        deep = self.preset_depth(scale)

        def keys(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, str]:
            return self.key(scale, *one), self.key(scale, *other)

        return (
            Claim(f"the Transformer gets better with depth: {deep} layers are better than 1",
                  *keys(("transformer", deep), ("transformer", 1))),
            Claim(f"Feedback needs little depth: 2 layers are as good as {deep}",
                  *keys(("feedback", 2), ("feedback", deep)), equal=True, or_better=True),
            Claim("with 2 layers Feedback beats the Transformer", *keys(("feedback", 2), ("transformer", 2))),
            Claim("with 1 layer Feedback beats the Transformer", *keys(("feedback", 1), ("transformer", 1))),
        )  # fmt: skip


def words_run(scale: str, core: str = "feedback", **fields: str) -> RunConfig:
    """A run on words; at the paper's scale the smaller of its two models."""
    small = "paper-small" if scale == "paper" else scale
    return language_run(wikitext.corpus(scale), small, core, **fields)


CHARACTERS = Panel(
    ptb_run,
    {"smoke": (1, 4), "laptop": (1, 2, 4, 6), "paper": (1, 2, 3, 4, 5, 6)},
    "ptb-char",
    shared=("smoke", "laptop", "paper"),
    seeds=SEEDS,
    one_seed=(("feedback", 1), ("transformer", 1), ("transformer", 2)),
)
WORDS = Panel(
    words_run,
    {"smoke": (1, 4), "laptop": (1, 2, 4), "paper": (1, 2, 4, 8)},
    "wikitext",
    shared=("smoke", "laptop"),
    seeds=wikitext.LAPTOP_SEEDS,
    one_seed=tuple((core, depth) for core in ATTENTION_CORES for depth in (1, 2)),
)

EXPERIMENTS = (
    Experiment(
        name="depth",
        title="Depth at a constant number of parameters, on char-PTB",
        where="Appendix, Figure 9 (left)",
        reduced=REDUCED.replace(LAYERS, "") + ", one seed of Feedback with 1 layer and of Transformers with 1 and 2",
        variants=CHARACTERS.variants,
        match=MATCH,
        axis="layers",
        claims=CHARACTERS.claims,
    ),
    Experiment(
        name="depth-words",
        title="Depth at a constant number of parameters, on WikiText",
        where="Appendix, Figure 9 (right)",
        reduced="WikiText-2 instead of WikiText-103; 1M parameters where the paper's smaller model has 44M, 64 "
        "memories instead of 512, 3.1M words of training (one and a half passes) instead of 28G, one seed with 1 and "
        "2 layers, two with 4",
        variants=WORDS.variants,
        axis="layers",
        claims=WORDS.claims,
    ),
)
