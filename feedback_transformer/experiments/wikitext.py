"""Table 3: words. WikiText-103 at the paper's scale, WikiText-2 on a laptop."""

from __future__ import annotations

from feedback_transformer.experiments.char_ptb import LSTM_WIDTH, language_run
from feedback_transformer.experiments.experiment import SEEDS, Claim, Elsewhere, Experiment, Variant

LAPTOP_SEEDS = (0, 1)
XL = "Transformer-XL, 257M parameters"


def corpus(scale: str) -> str:
    return "wikitext-103" if scale == "paper" else "wikitext-2"


def shared(scale: str, core: str = "feedback") -> dict[str, str]:
    """What makes 126M parameters of the 139M that its table of hyperparameters has."""
    return {"shared_kv": "true"} if (scale, core) == ("paper", "feedback") else {}


def variants(scale: str) -> list[Variant]:
    task = corpus(scale)
    size = LSTM_WIDTH if scale == "laptop" else {}
    seeds, few = (LAPTOP_SEEDS, LAPTOP_SEEDS[:1]) if scale == "laptop" else (SEEDS, SEEDS)
    feedback, transformer = language_run(task, scale, **shared(scale)), language_run(task, scale, "transformer")
    return [
        Variant("wikitext/feedback", "Feedback Transformer", feedback, paper=18.3, seeds=seeds),
        Variant("wikitext/transformer", "Transformer", transformer, paper=19.9, seeds=seeds),
        Variant("wikitext/lstm", "LSTM", language_run(task, scale, "lstm", **size), seeds=few),
    ]


EXPERIMENT = Experiment(
    name="wikitext",
    title="Words: perplexity on WikiText",
    where="Table 3",
    reduced="WikiText-2 instead of WikiText-103; 1M parameters (LSTM: 1.3M) instead of the paper's 126M (Transformer: "
    "140M), 64 memories instead of 2048, 3.1M words of training (one and a half passes) instead of 28G, two seeds "
    "(LSTM: one)",
    variants=variants,
    scores=("perplexity",),
    elsewhere=(
        Elsewhere("Routing Transformer, the best at the time", {"perplexity": 15.8}, "Table 3 of the paper"),
        Elsewhere(XL, {"perplexity": 18.3}, "Table 3 of the paper"),
    ),
    claims=lambda _: (
        Claim("Feedback is better than the Transformer", "wikitext/feedback", "wikitext/transformer"),
        Claim("Feedback matches Transformer-XL at half its size", "wikitext/feedback", XL, equal=True, published=True),
        Claim("Feedback is better than the LSTM", "wikitext/feedback", "wikitext/lstm", ours=True),
    ),
)
