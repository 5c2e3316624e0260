"""Table 2: Feedback beside recurrent, hybrid and Transformer models on WMT14 En-De, as their authors report them.

The paper's Feedback Transformer has 6 decoder layers. Its runs are those of `translation` with the deepest decoders.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from feedback_transformer.config import CORES
from feedback_transformer.experiments import translation
from feedback_transformer.experiments.experiment import Claim, Elsewhere, Experiment, Variant

PUBLISHED = {
    "recurrent models": {"DenseNMT (Shen et al. 2018)": 25.5, "RNMT+ (Chen et al. 2018)": 28.5},
    "hybrids": {"BiARN (Hao et al. 2019)": 28.9, "SRU (Lei et al. 2017)": 28.4},
    "Transformers": {"Transformer (Vaswani et al. 2017)": 28.4, "Transformer (Ott et al. 2018)": 29.3},
}
FEEDBACK = "wmt14-ende/feedback-6"
ROWS = (*itertools.chain(*(kind.items() for kind in PUBLISHED.values())),
        ("Feedback Transformer, 6 decoder layers (Fan et al.)", translation.PAPER["feedback", 6]))  # fmt: skip


def variants(scale: str) -> list[Variant]:
    """Both decoders at the greatest depth of that scale, in a table, which has no axis to place them on."""
    deepest = [one for one in translation.variants(scale) if one.place == translation.DEPTHS[scale][-1]]
    return [replace(one, label=CORES[one.line], place=None) for one in deepest]


EXPERIMENT = Experiment(
    name="recurrent-comparison",
    title="Translation: BLEU on newstest2014 beside recurrent models",
    where="Section 4.3.1, Table 2",
    reduced=f"2 decoder layers instead of 6; {translation.REDUCED}",
    afterwards=translation.EXPERIMENT.afterwards,
    one_machine=False,
    prepare=translation.EXPERIMENT.prepare,
    variants=variants,
    scores=translation.EXPERIMENT.scores,
    elsewhere=tuple(Elsewhere(name, {"tokenized_bleu": number}, "Table 2 of the paper") for name, number in ROWS),
    claims=lambda _: tuple(
        Claim(f"Feedback with 6 decoder layers is better than {kind}", FEEDBACK,
              max(names, key=names.__getitem__), published=True)
        for kind, names in PUBLISHED.items()
    ),
)  # fmt: skip
