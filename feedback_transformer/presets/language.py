"""Language models: the columns of the paper's "Hyperparameters for language modeling experiments", and reduced ones."""

from __future__ import annotations

from dataclasses import replace

from feedback_transformer.config import ModelConfig, TrainConfig
from feedback_transformer.tasks import CORPORA

# The columns of the paper's table. Their parameter counts (3.2M, 10.7M, 77M, 44M, 139M) are those of unshared keys and
# values, and for WikiText-103 of tied adaptive inputs and outputs with these cutoffs. Tied embeddings start at
# 1 / sqrt(D): at a spread of 1 they would make logits of spread sqrt(D), and a first loss of hundreds of nats.
WORD_CUTOFFS = (20_000, 40_000, 200_000)
PAPER_MODELS = {
    "ptb-char": ModelConfig(num_layers=6, model_dim=384, num_heads=4, memory_size=512, shared_kv=False, dropout=0.5),
    "enwik8": ModelConfig(
        num_layers=12,
        model_dim=512,
        num_heads=8,
        head_dim=128,
        ff_dim=8 * 512,
        memory_size=8192,
        adaptive_span=True,
        shared_kv=False,
        dropout=0.5,
    ),
    "wikitext-103-small": ModelConfig(
        num_layers=4,
        model_dim=512,
        num_heads=8,
        head_dim=128,
        ff_dim=8 * 512,
        memory_size=512,
        shared_kv=False,
        dropout=0.1,
        embedding_dropout=0.1,
        output_dropout=0.1,
        tie_weights=True,
        cutoffs=WORD_CUTOFFS,
        embedding_std=512**-0.5,
    ),
    "wikitext-103": ModelConfig(
        num_layers=8,
        model_dim=1024,
        num_heads=8,
        memory_size=2048,
        adaptive_span=True,
        shared_kv=False,
        dropout=0.3,
        embedding_dropout=0.2,
        output_dropout=0.2,
        tie_weights=True,
        cutoffs=WORD_CUTOFFS,
        embedding_std=1024**-0.5,
    ),
}
PAPER_TRAIN = {
    "ptb-char": TrainConfig(
        steps=15_000,
        finetune_steps=1_000,
        batch_size=2048,
        bptt=128,
        learning_rate=1.5e-3,
        warmup_steps=1_000,
        gradient_clip=1.0,
        eval_every=100,
        patience=10,
    ),
    "enwik8": TrainConfig(
        steps=100_000,
        finetune_steps=10_000,
        batch_size=1024,
        bptt=128,
        bptt_start=64,
        learning_rate=1.5e-3,
        warmup_steps=8_000,
        gradient_clip=0.1,
        span_loss=5e-7,
        eval_every=1_000,
    ),
    "wikitext-103": TrainConfig(
        steps=200_000,
        finetune_steps=10_000,
        batch_size=512,
        bptt=256,
        learning_rate=7e-4,
        warmup_steps=8_000,
        gradient_clip=0.1,
        span_loss=1e-5,
        eval_every=2_000,
    ),
}

# Reduced language models: minutes on one core and a pass or two over the corpus, so no dropout.
LAPTOP_LANGUAGE_MODEL = ModelConfig(num_layers=4, model_dim=96, num_heads=4, memory_size=64, shared_kv=False)
LAPTOP_LANGUAGE_TRAIN = TrainConfig(
    steps=1_500,
    batch_size=64,
    bptt=32,
    learning_rate=4e-3,
    warmup_steps=200,
    schedule="linear",
    gradient_clip=1.0,
    eval_every=250,
)
WORDS = ("wikitext-2", "wikitext-103")
LAPTOP: dict[str, tuple[ModelConfig, TrainConfig]] = {}
for name in CORPORA:
    ends = {"tie_weights": True, "cutoffs": (2_000, 10_000), "embedding_std": 0.2} if name in WORDS else {}
    LAPTOP[name] = (replace(LAPTOP_LANGUAGE_MODEL, **ends), LAPTOP_LANGUAGE_TRAIN)  # type: ignore[arg-type]
