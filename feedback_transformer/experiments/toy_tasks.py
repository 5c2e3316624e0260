"""Table 1: toy tasks, one experiment per task. `reproduce toy-tasks` runs them all.

All scores, the paper's too, are fractions of 1 here. The paper's Transformer has 4 layers, and a second one in the
algorithmic task has 8; on a laptop every task has both. There the Feedback Transformer has 2 layers, and all other
models are trained on as many tokens. Copy and reverse with an encoder are in `copy_pairs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from feedback_transformer.experiments.experiment import SEEDS, Claim, Elsewhere, Experiment, Variant
from feedback_transformer.presets import preset

LABELS = {
    "feedback": "Feedback Transformer",
    "transformer-4": "Transformer, 4 layers",
    "transformer-8": "Transformer, 8 layers",
    "lstm": "LSTM",
}
OTHERS = {"transformer-4": "the Transformer", "transformer-8": "a Transformer of 8 layers", "lstm": "the LSTM"}
FIELDS = {"feedback": {}, "transformer-4": {"num_layers": "4"}, "transformer-8": {"num_layers": "8"}, "lstm": {}}
WIDE = {"model_dim": "128"}  # an LSTM needs twice the width, and is cheap
CHANCE = {"character": 0.11, "sequence": 0.0}  # slightly above one digit in ten; no whole string
AS_MUCH_TIME = "Feedback is better when trained for as long as the Transformer"
STAIRCASE = "arXiv 2106.04279"
Numbers = Mapping[str, Mapping[str, float]]


class Longer(NamedTuple):
    """Rows that train on more tokens: for how many updates, and which models. Feedback alone takes no longer than the
    Transformer of 4 layers then; others are trained on as many tokens again, the slowest with one seed."""

    steps: int
    models: tuple[str, ...]


class Toy(NamedTuple):
    """A task of the table: its scores, the paper's numbers by model and score, and what is reduced."""

    task: str
    title: str
    where: str
    scores: tuple[str, ...]
    paper: Numbers
    reduced: str
    longer: Longer | None = None
    elsewhere: tuple[Elsewhere, ...] = ()
    transformer: Mapping[str, str] = MappingProxyType({})  # fields of a laptop's Transformer, where it needs others


SIZE = (
    "Feedback has 0.1M parameters instead of the paper's 3.2M, and 2 layers instead of 4 (the others' sizes are in the "
    "table); episodes newly drawn throughout training; a learned bias over distance"
)
STATES = SIZE.replace("throughout training", "throughout training (the paper has 10,000)")
COPYING = (
    f"{SIZE} up to 16 steps, scores scaled by the number of memories in sight, strings of 1 to 40 digits, many with "
    "few different digits, 256 test strings, 15.7M tokens"
)
TOYS = (
    Toy(
        "copy", "Copy: 400 digits, trained on 40", "Section 4.1.1, Table 1", ("character", "sequence"),
        {"feedback": {"character": 0.762, "sequence": 0.236}, "transformer-4": {"character": 0.591, "sequence": 0.062}},
        f"{COPYING} (47.2M in the longer row), four strings in a row sharing one memory, half of the training answers "
        "beginning at a random digit",
        Longer(15_360, ("feedback",)),
    ),
    Toy(
        "reverse", "Reverse: 400 digits, trained on 40", "Section 4.1.1, Table 1", ("character", "sequence"),
        {"feedback": {"character": 0.748, "sequence": 0.292}, "transformer-4": {"character": 0.502, "sequence": 0.059}},
        f"{COPYING.replace('0.1M', '0.2M').replace('1 to 40', '30 to 40').replace('15.7M', '12.6M')} (25.2M in the "
        "longer row), eight strings in a row sharing one memory, half of them asked for in parts, half of them only "
        "after the next, 3% of the answers' digits misread; six of eight heads are initialised to attend one to six "
        "steps back. A Transformer does not learn this way, so it has another curriculum: lengths from 1 up to 4, "
        "10, 20 and 40, nine in ten strings asked for in parts, whose cues are read again, none later, nothing "
        "misread; two seeds of 4 layers that trained in this way for a quarter longer, and whose records were "
        "withdrawn, wrote 82% of the digits and 55% of the strings",
        Longer(16_384, ("feedback",)),
        transformer={"curriculum": "length=4;length=10;length=20", "curriculum_deadline": "0.5", "min_length": "1",
                     "cues": "0.9", "reread": "true", "later": "0", "misread": "0"},
    ),
    Toy(
        "counting-50", "Counting to 50", "Section 4.1.1, Table 1", ("sequence",),
        {"feedback": {"sequence": 0.997}, "transformer-4": {"sequence": 0.996}},
        f"{SIZE}, 5.2M tokens",
    ),
    Toy(
        "counting-1k", "Counting to 1000", "Section 4.1.1, Table 1", ("sequence",),
        {"feedback": {"sequence": 0.953}, "transformer-4": {"sequence": 0.824}},
        f"{SIZE} up to 16 steps and a curriculum of counts, most of them small, 19.0M tokens; Feedback's memory starts "
        "as 96% embedding (`memory_bottom=4`)",
    ),
    Toy(
        "random-walk", "Random walk", "Section 4.1.2, Table 1", ("accuracy",),
        {"feedback": {"accuracy": 1.0}, "transformer-4": {"accuracy": 0.68}},
        f"{STATES} and a curriculum of lengths, 5.6M tokens (13.9M in the longer rows)",
        Longer(16_000, tuple(LABELS)),
    ),
    Toy(
        "algorithmic-3", "Algorithmic task, 3 variables", "Section 4.1.2, Table 1", ("accuracy",),
        {"feedback": {"accuracy": 0.991}, "transformer-4": {"accuracy": 0.337}, "transformer-8": {"accuracy": 0.474},
         "lstm": {"accuracy": 0.828}},
        f"{STATES} and a curriculum of programs, 24.6M tokens (32.8M in the longer rows)",
        Longer(16_000, tuple(LABELS)),
        elsewhere=(Elsewhere("Staircase", {"accuracy": 0.964}, STAIRCASE),
                   Elsewhere("Transformer in the Staircase paper", {"accuracy": 0.416}, STAIRCASE)),
    ),
    Toy(
        "algorithmic-5", "Algorithmic task, 5 variables", "Section 4.1.2, Table 1", ("accuracy",),
        {"feedback": {"accuracy": 0.926}, "transformer-4": {"accuracy": 0.375}, "transformer-8": {"accuracy": 0.291},
         "lstm": {"accuracy": 0.321}},
        f"{STATES} and a curriculum of programs, 28.7M tokens",
    ),
)  # fmt: skip


def variant(toy: Toy, scale: str, name: str, longer: bool = False) -> Variant:
    """A model of the table; `longer` trains on more tokens, as `toy.longer` says."""
    fields = dict(FIELDS[name])
    key, label, seeds = f"{toy.task}/{name}", LABELS[name], SEEDS
    if name == "lstm" and scale == "laptop":
        fields, key = dict(WIDE), f"{key}-128"
    if name.startswith("transformer") and scale == "laptop":
        fields |= toy.transformer
    if longer and toy.longer:
        fields["steps"], key, label = str(toy.longer.steps), f"{key}-longer", f"{label}, {toy.longer.steps:,} updates"
        seeds = (0,) if name == "transformer-8" else SEEDS
    run = preset(toy.task, scale, name.partition("-")[0]).override(fields)
    return Variant(key, label, run, paper=None if longer else toy.paper.get(name), seeds=seeds)


def has_eight_layers(toy: Toy, scale: str) -> bool:
    return scale == "laptop" or "transformer-8" in toy.paper


def variants(toy: Toy, scale: str) -> list[Variant]:
    rows = [variant(toy, scale, name) for name in LABELS if name != "transformer-8" or has_eight_layers(toy, scale)]
    if scale == "laptop" and toy.longer:
        rows += [variant(toy, scale, name, longer=True) for name in toy.longer.models]
    if scale == "laptop" and toy.task == "random-walk":  # the demo's models
        rows += [
            Variant(
                "random-walk/transformer", "Transformer, 2 layers", preset(toy.task, core="transformer"), seeds=(0,)
            ),
            Variant("random-walk/lstm", "LSTM of half the width", preset(toy.task, core="lstm"), seeds=(0,)),
        ]
    return rows


def compare(toy: Toy, words: str, better: str, worse: str, ours: bool = False, unequal: bool = False) -> list[Claim]:
    """One claim per score, which it names where there are several."""
    several = len(toy.scores) > 1
    return [
        Claim(
            f"{words} ({s})" if several else words,
            better,
            worse,
            score=s,
            chance=CHANCE.get(s),
            ours=ours,
            unequal=unequal,
        )
        for s in toy.scores
    ]


def claims(toy: Toy, scale: str) -> tuple[Claim, ...]:
    """The claims of the paper's text, and where we train longer, our own."""
    feedback, key = f"{toy.task}/feedback", f"{toy.task}/transformer-4"
    if toy.task == "counting-50":
        return (Claim("both count to 50", feedback, key, equal=True, chance=0.9),)

    made = compare(toy, f"Feedback is better than {OTHERS['transformer-4']}", feedback, key)
    if has_eight_layers(toy, scale):
        eight, ours = f"{toy.task}/transformer-8", "transformer-8" not in toy.paper
        made += compare(toy, f"Feedback is better than {OTHERS['transformer-8']}", feedback, eight, ours=ours)
    if "lstm" in toy.paper:
        made += compare(toy, f"Feedback is better than {OTHERS['lstm']}", feedback, variant(toy, scale, "lstm").key)
    if toy.longer and scale == "laptop":
        longer = f"{feedback}-longer"
        others = [name for name in toy.longer.models if name != "feedback"]
        for name in others:
            words = f"Feedback stays ahead of {OTHERS[name]} when both train for longer"
            made += compare(toy, words, longer, variant(toy, scale, name, longer=True).key, ours=True)
        if "transformer-4" not in others:
            made += compare(toy, AS_MUCH_TIME, longer, key, ours=True, unequal=True)
    return tuple(made)


def experiment(toy: Toy) -> Experiment:
    return Experiment(
        name=toy.task,
        title=toy.title,
        where=toy.where,
        reduced=toy.reduced,
        variants=lambda scale: variants(toy, scale),
        claims=lambda scale: claims(toy, scale),
        scores=toy.scores,
        elsewhere=toy.elsewhere,
    )


EXPERIMENTS = tuple(map(experiment, TOYS))
