"""Table 1, copy and reverse, with an encoder that reads all digits first; tested at ten times the training length.

The paper does not say how the digits were read. Here the encoder convolves over neighbours, so it computes the same
for a position in a string of any length. The decoder only has to know where it is. At the paper's scale the decoder is
the paper's and the encoder ours. The paper's claims are counted once, without an encoder; with one, they are questions
of ours.
"""

from __future__ import annotations

from feedback_transformer.experiments.experiment import Experiment, Variant
from feedback_transformer.experiments.toy_tasks import AS_MUCH_TIME, FIELDS, LABELS, TOYS, Toy, compare
from feedback_transformer.presets import preset

MODELS = ("feedback", "transformer-4")
LONGER = 8_000  # updates of Feedback that take as long as the Transformer's 4,000


def variants(toy: Toy, scale: str) -> list[Variant]:
    rows = [
        Variant(
            f"{toy.task}-pairs/{name}",
            LABELS[name],
            preset(f"{toy.task}-pairs", scale, name.partition("-")[0]).override(FIELDS[name]),
            paper=toy.paper[name],
        )
        for name in MODELS
    ]
    if scale == "laptop":
        longer, label = rows[0].run.override({"steps": str(LONGER)}), f"{LABELS['feedback']}, {LONGER:,} updates"
        rows.append(Variant(f"{rows[0].key}-longer", label, longer))
    return rows


def experiment(toy: Toy) -> Experiment:
    feedback, transformer = (f"{toy.task}-pairs/{name}" for name in MODELS)
    return Experiment(
        name=f"{toy.task}-pairs",
        title=f"{toy.task.capitalize()} with an encoder: 400 digits, trained on 40",
        where=toy.where,
        reduced="Feedback's decoder has 2 layers instead of the paper's 4, and 0.3M parameters; strings of 1 to 40 "
        "digits, newly drawn throughout training, most with few different digits; an encoder of two convolutions over "
        "4 neighbours to each side; distances beyond 16 are treated alike, scores scaled by the number of positions in "
        "sight, 256 test strings",
        variants=lambda scale: variants(toy, scale),
        claims=lambda _: (
            *compare(toy, "Feedback is better than the Transformer", feedback, transformer, ours=True),
            *compare(toy, AS_MUCH_TIME, f"{feedback}-longer", transformer, ours=True, unequal=True),
        ),
        scores=toy.scores,
    )


EXPERIMENTS = tuple(experiment(toy) for toy in TOYS if toy.task in ("copy", "reverse"))
