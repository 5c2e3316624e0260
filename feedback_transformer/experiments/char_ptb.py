"""Character-level Penn Treebank: Feedback against Transformer against LSTM.

The paper uses char-PTB for its ablations: the Feedback Transformer, the Transformer and memories between the two
(`memory_composition.py`, `single_layer.py`, `depth.py`). Here an LSTM of the same size is compared with them too.
"""

from __future__ import annotations

from feedback_transformer.experiments.experiment import Claim, Experiment, Variant
from feedback_transformer.presets import preset
from feedback_transformer.training.run import RunConfig

LAYERS = "4 layers instead of 6, "
REDUCED = (
    f"0.46M parameters instead of the paper's 10.7M, {LAYERS}64 memories instead of 512, 3.1M characters of training "
    "instead of 4.2G"
)
MATCH = 0.01  # bits: half of what Feedback is ahead of the Transformer
LSTM_WIDTH = {"model_dim": "164", "num_layers": "2"}  # as many parameters, in the shape that suits it


def language_run(task: str, scale: str, core: str = "feedback", **fields: str) -> RunConfig:
    """A run on the corpus data/TASK. On a laptop the best weights are chosen by a part of the validation set."""
    chosen = {"data": f"data/{task}"}
    if scale == "laptop":
        chosen["valid_tokens"] = "100000"
    return preset(task, scale, core).override({**chosen, **fields})


def ptb_run(scale: str, core: str = "feedback", **fields: str) -> RunConfig:
    return language_run("ptb-char", scale, core, **fields)


def feedback(scale: str) -> Variant:
    return Variant("ptb-char/feedback", "Feedback Transformer", ptb_run(scale))


def transformer(scale: str) -> Variant:
    return Variant("ptb-char/transformer", "Transformer", ptb_run(scale, "transformer"))


def variants(scale: str) -> list[Variant]:
    size = LSTM_WIDTH if scale == "laptop" else {}
    return [
        feedback(scale),
        transformer(scale),
        Variant("ptb-char/lstm", "LSTM", ptb_run(scale, "lstm", **size)),
    ]


EXPERIMENT = Experiment(
    name="char-ptb",
    title="Character-level Penn Treebank: Feedback, Transformer, LSTM",
    where="Sections 4.3.1 and 4.3.2",
    reduced=REDUCED,
    variants=variants,
    claims=lambda _: (
        Claim("Feedback is better than the Transformer", "ptb-char/feedback", "ptb-char/transformer"),
        Claim("Feedback is better than recurrence alone (LSTM)", "ptb-char/feedback", "ptb-char/lstm", ours=True),
    ),
)
