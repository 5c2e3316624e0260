"""Figure 4, left: translation on WMT14 En-De over the depth of the decoder, and a deep encoder.

On a laptop Europarl stands in for the 4.5M pairs. As in the paper, newstest2013 is for validation and newstest2014 for
testing. The paper reports tokenised BLEU with compounds split; sacrebleu's is given beside it. The other axis of its
figure, words decoded per second over the depth of the decoder, is measured by `bench --translation`
(docs/translation.md).
"""

from __future__ import annotations

from feedback_transformer.config import CORES
from feedback_transformer.experiments.experiment import SEEDS, Claim, Experiment, Variant, seeds_at
from feedback_transformer.model.encoder_decoder import DECODERS
from feedback_transformer.presets import preset
from feedback_transformer.training.run import RunConfig

DEPTHS = {"smoke": (1,), "laptop": (1, 2), "paper": (1, 2, 4, 6)}
PAPER = {("feedback", 1): 28.3, ("transformer", 1): 27.3, ("feedback", 6): 29.5}
DEEP_ENCODER = {"encoder_layers": "12", "layer_drop": "0.1"}

# On a laptop: how the pairs are prepared (docs/translation.md says from what), and how many of them are used for
# validation and for testing (0: all).
PREPARE = {
    "multi30k": "multi30k",
    "iwslt14-deen": "iwslt14-deen --from FOLDER --vocab-size 4000 --max-length 100 --skip '<S_[0-9]+>'",
    "wmt14-ende": "wmt14-ende --from FOLDER --vocab-size 6000 --max-length 40",
    "cnn-dailymail": "cnn-dailymail --from FOLDER --vocab-size 6000 --source-words 120 --max-length 200",
}
UNTAUGHT = 3.0  # BLEU: far above what frequent words get, whatever the sentence (every new record's `bounds`)
AFTERWARDS = "Scored with the best weights and a length penalty of 1; the paper's own procedure, afterwards: "
SMALL_PAIR_MODEL = "width 96 instead of 512 and 2 encoder layers instead of 6"
REDUCED = (
    "120,789 short pairs of Europarl instead of the 4.5M of WMT and about one pass over them, 1M parameters instead of "
    "Transformer big, the first 1,000 sentences of newstest2014, no averaging, one seed"
)
SPEEDS = (
    "words/s over the depth of the decoder are measured separately, by `bench --translation`, since these runs were "
    "not scored side by side"
)
LEAST = 0.5  # BLEU: the noise of choosing 1,000 sentences
SHALLOW_LOSS = 1.2  # BLEU that a single decoder layer may lose against six: 28.3 against 29.5, "only losing 1 BLEU"
HELD_OUT = {"multi30k": (500, 0), "iwslt14-deen": (500, 1500), "wmt14-ende": (500, 1000), "cnn-dailymail": (100, 300)}


def pair_run(task: str, scale: str, core: str, **fields: str) -> RunConfig:
    """A run on the pairs in data/TASK."""
    held_out = dict(zip(("valid_pairs", "test_pairs"), map(str, HELD_OUT[task]), strict=True))
    return preset(task, scale, core).override({**(held_out if scale == "laptop" else {}), **fields})


def over_depth(
    task: str, scale: str, depths: tuple[int, ...], paper: dict[tuple[str, int], float], repeated: tuple[int, ...] = ()
) -> list[Variant]:
    """Both decoders at every depth; the encoder stays as it is. On a laptop the `repeated` depths have all seeds."""
    return [
        Variant(
            f"{task}/{core}-{depth}",
            f"{CORES[core]}, {depth} decoder layer{'s' * (depth > 1)}",
            pair_run(task, scale, core, num_layers=str(depth)),
            paper={"tokenized_bleu": paper[core, depth]} if (core, depth) in paper else None,
            place=depth,
            line=core,
            seeds=SEEDS if scale == "laptop" and depth in repeated else seeds_at(scale),
        )
        for core in DECODERS
        for depth in depths
    ]


def depth_claims(
    task: str, depths: tuple[int, ...], ours: bool = False, deepest_ours: bool = False, chance: float = UNTAUGHT
) -> tuple[Claim, ...]:
    """Feedback is better at every depth, and most where the decoder is shallowest, which may be our own question, and
    so may be the deepest decoder. A score up to `chance` shows nothing."""
    every = tuple(
        Claim(f"with {depth} decoder layer{'s' * (depth > 1)} Feedback beats the Transformer",
              f"{task}/feedback-{depth}", f"{task}/transformer-{depth}", chance=chance,
              ours=deepest_ours and depth == depths[-1])
        for depth in depths
    )  # fmt: skip
    if len(depths) < 2:
        return every
    first, last = depths[0], depths[-1]
    gaps = [(f"{task}/feedback-{depth}", f"{task}/transformer-{depth}") for depth in (first, last)]
    layers = f"{first} decoder layer{'s' * (first > 1)}"
    words = f"Feedback's lead is larger with {layers} than with {last}"
    return *every, Claim(words, *gaps[0], than=gaps[1], ours=ours, chance=chance)


def shallow_claim(depths: tuple[int, ...]) -> tuple[Claim, ...]:
    """A single decoder layer is nearly as good as the deepest decoder, six layers in the paper; nothing where there is
    only one depth."""
    if len(depths) < 2:
        return ()
    first, last = (f"wmt14-ende/feedback-{depth}" for depth in (depths[0], depths[-1]))
    words = f"Feedback with 1 decoder layer loses only 1 BLEU against {depths[-1]}"
    return (Claim(words, first, last, equal=True, or_better=True, chance=UNTAUGHT, ours=depths[-1] != 6),)


def variants(scale: str) -> list[Variant]:
    deep = Variant(
        "wmt14-ende/feedback-12-2", "Feedback Transformer, 12 encoder and 2 decoder layers",
        pair_run("wmt14-ende", scale, "feedback", num_layers="2", **DEEP_ENCODER),
        paper={"tokenized_bleu": 29.0}, seeds=seeds_at(scale),
    )  # fmt: skip
    return [*over_depth("wmt14-ende", scale, DEPTHS[scale], PAPER), deep]


EXPERIMENT = Experiment(
    name="translation",
    title="Translation: BLEU on newstest2014 over the depth of the decoder",
    where="Section 4.2.1, Figure 4 (left)",
    reduced=f"1 and 2 decoder layers instead of 1 to 6; {REDUCED}; {SPEEDS}",
    afterwards=f"{AFTERWARDS}`feedback-transformer average RUN --last 10`, then `tune` and `evaluate` of "
    "RUN/average.safetensors",
    one_machine=False,
    least=LEAST,
    match=SHALLOW_LOSS,
    prepare=PREPARE["wmt14-ende"],
    variants=variants,
    axis="decoder layers",
    scores=("tokenized_bleu", "bleu"),
    claims=lambda scale: (
        *depth_claims("wmt14-ende", DEPTHS[scale]),
        *shallow_claim(DEPTHS[scale]),
        Claim("a shallow decoder gains from a deep encoder", "wmt14-ende/feedback-12-2", "wmt14-ende/feedback-2",
              chance=UNTAUGHT, ours=True),
    ),
)  # fmt: skip
