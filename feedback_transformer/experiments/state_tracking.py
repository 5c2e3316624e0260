"""Not in the paper: current benchmarks of state tracking. `reproduce state-tracking` runs them all.

Where there are published results, they are listed beside ours with their source. Most of their models are larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from feedback_transformer.experiments.experiment import SEEDS, Claim, Elsewhere, Experiment, Variant
from feedback_transformer.experiments.toy_tasks import WIDE
from feedback_transformer.presets import preset

EIGENVALUES, MAMBA_3 = "arXiv 2411.12537, best of 3", "arXiv 2603.15569"
LOOPED, FLIP_FLOPS = "Recurrent Looped Transformer paper, 2026", "arXiv 2306.00946"
BASELINES = {"transformer": 1, "lstm": 1}  # seeds
OTHERS = {"top": 1, **BASELINES}
LEAST = 0.05  # of a score: the noise of choosing 1,000 strings
# Scaled accuracy on 40 to 256 symbols: parity, modular arithmetic, with brackets.
FORMAL = {
    ("Transformer", EIGENVALUES): (0.022, 0.031, 0.067),
    ("mLSTM", EIGENVALUES): (0.087, 0.040, 0.114),
    ("sLSTM", EIGENVALUES): (1.000, 0.787, 0.178),
    ("Mamba [0, 1]", EIGENVALUES): (0.000, 0.095, 0.123),
    ("Mamba [-1, 1]", EIGENVALUES): (1.000, 0.241, 0.116),
    ("DeltaNet [0, 1]", EIGENVALUES): (0.017, 0.314, 0.194),
    ("DeltaNet [-1, 1]", EIGENVALUES): (1.000, 0.971, 0.260),
    ("Gated DeltaNet [-1, 1]", MAMBA_3): (1.000, 0.993, 0.935),
    ("Mamba-3", MAMBA_3): (1.000, 0.985, 0.878),
}


class Tracking(NamedTuple):
    """A task: its scores, what is reduced, and published results."""

    task: str
    title: str
    scores: tuple[str, ...]
    reduced: str
    chance: float  # slightly above the first score of a model that has learned nothing
    elsewhere: tuple[Elsewhere, ...] = ()
    fewer: Mapping[str, int] = MappingProxyType({})  # seeds of some models, where a run takes long or all is clear


def formal(column: int) -> tuple[Elsewhere, ...]:
    return tuple(Elsewhere(name, {"scaled": row[column]}, source) for (name, source), row in FORMAL.items())


SIZE = "0.1M parameters (LSTM: 0.3M)"
FORMAL_LENGTHS = "lengths of up to 4, 10, 20 and 40 in turn"
LOOPED_SIZE = "instead of 8 layers of width 512 in the Recurrent Looped Transformer paper"
TASKS = (
    Tracking("parity", "Parity of 40 to 256 bits, trained on up to 40", ("scaled", "accuracy"),
             f"{SIZE}, {LOOPED_SIZE}; 3.7M tokens, {FORMAL_LENGTHS}", 0.05,
             (*formal(0), Elsewhere("Recurrent Looped Transformer, at length 256", {"accuracy": 1.0}, LOOPED),
              Elsewhere("Transformer, at length 256", {"accuracy": 0.501}, LOOPED))),
    Tracking("arithmetic", "Arithmetic modulo 5, 40 to 256 symbols, trained on up to 40", ("scaled", "accuracy"),
             f"{SIZE}, 20M tokens, {FORMAL_LENGTHS}, one seed of the other models", 0.05, formal(1), OTHERS),
    Tracking("brackets", "Arithmetic modulo 5 with brackets, 40 to 256 symbols, trained on up to 40",
             ("scaled", "accuracy"), f"{SIZE}, 20M tokens, {FORMAL_LENGTHS}, one seed", 0.05, formal(2),
             {"feedback": 1, **OTHERS}),
    Tracking("s5-swaps", "Sequences of 256 swaps of five things, trained on 32", ("accuracy", "last"),
             f"{SIZE}, {LOOPED_SIZE}; 6.3M tokens, lengths of 4, 8, 16 and 32 in turn", 0.05,
             (Elsewhere("Recurrent Looped Transformer, at length 256", {"last": 0.973}, LOOPED),
              Elsewhere("the same, at length 512", {"last": 0.557}, LOOPED),
              Elsewhere("the same, at length 64", {"last": 1.0}, LOOPED),
              Elsewhere("the same, at length 64, fed back every 4 symbols", {"last": 0.196}, LOOPED),
              Elsewhere("Transformer, at length 256", {"last": 0.0085}, LOOPED))),
    Tracking("s5", "Sequences of 256 permutations of five things, trained on 32", ("accuracy", "last"),
             f"0.4M parameters (LSTM: 0.3M), {LOOPED_SIZE}; 25.4M tokens, lengths of 1, 2, 4, 12 and 32 in turn, two "
             "seeds of Feedback and one of the other models; the weighted sum starts near the top layer "
             "(`memory_top=2`)", 0.05,
             (Elsewhere("the best of all models there", {"last": 0.025}, LOOPED),), {"feedback": 2, **OTHERS}),
    Tracking("flip-flop", "Flip-flop language, trained with 80% ignore instructions", ("sparse", "dense"),
             f"{SIZE}, 1.6M tokens, one seed of the Transformer", 0.55,
             (Elsewhere("LSTM, one layer of width 128", {"sparse": 1.0, "dense": 1.0}, FLIP_FLOPS),),
             {"transformer": 1}),
    Tracking("recall", "Associative recall of 16 keys", ("accuracy",),
             f"{SIZE}, 7.0M tokens, 2, 6 and 16 keys in turn, one seed of the Transformer and the LSTM", 0.1,
             (), BASELINES),
)  # fmt: skip


def variants(own: Tracking, scale: str) -> list[Variant]:
    if scale == "paper":
        return []  # the paper has none of these
    wide = WIDE if scale == "laptop" else {}
    rows = {
        "feedback": ("Feedback Transformer", preset(own.task, scale)),
        "top": ("Feedback Transformer, top-only memory", preset(own.task, scale).override({"memory": "top"})),
        "transformer": ("Transformer", preset(own.task, scale, "transformer")),
        "lstm": ("LSTM", preset(own.task, scale, "lstm").override(wide)),
    }
    return [
        Variant(f"{own.task}/{name}", *row, seeds=SEEDS[: own.fewer.get(name, len(SEEDS))])
        for name, row in rows.items()
    ]


def experiment(own: Tracking) -> Experiment:
    feedback, top, transformer, lstm = (f"{own.task}/{name}" for name in ("feedback", "top", "transformer", "lstm"))
    return Experiment(
        name=own.task,
        title=own.title,
        where="",
        reduced=own.reduced,
        variants=lambda scale: variants(own, scale),
        claims=lambda _: (
            Claim("Feedback is better than the Transformer", feedback, transformer, chance=own.chance),
            Claim("Feedback is better than the LSTM", feedback, lstm, chance=own.chance),
            Claim(
                "top-only memory is as good as the weighted sum",
                top,
                feedback,
                equal=True,
                or_better=True,
                chance=own.chance,
            ),
        ),
        scores=own.scores,
        least=LEAST,
        elsewhere=own.elsewhere,
    )


EXPERIMENTS = tuple(map(experiment, TASKS))
