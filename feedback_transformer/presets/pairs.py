"""Encoder-decoders: the columns of "Hyperparameters for sequence to sequence experiments", and reduced ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from feedback_transformer.config import ModelConfig, TrainConfig
from feedback_transformer.presets.toys import COPYING_MODEL, COPYING_TRAIN
from feedback_transformer.tasks import PAIR_TOYS, PAIRS

# Translation and summarization: the columns of "Hyperparameters for sequence to sequence experiments". The paper gives
# no batch and no number of updates; these are of Ott et al. 2018 (WMT) and of the usual recipe (the others).
PAPER_PAIR_MODEL = ModelConfig(
    encoder_layers=6,
    num_layers=6,
    model_dim=512,
    num_heads=8,
    ff_dim=2048,
    memory_size=256,
    shared_kv=False,
    dropout=0.3,
    embedding_dropout=0.3,
    tie_weights=True,
)
PAPER_PAIR_TRAIN = TrainConfig(
    steps=50_000,
    batch_tokens=32_768,
    learning_rate=5e-4,
    warmup_steps=4_000,
    schedule="inverse-sqrt",
    adam_beta2=0.98,
    label_smoothing=0.1,
    gradient_clip=0.0,
    eval_every=1_000,
    keep_checkpoints=10,
)
PAPER_MODELS = {
    "cnn-dailymail": PAPER_PAIR_MODEL,
    "wmt14-ende": replace(PAPER_PAIR_MODEL, model_dim=1024, head_dim=0, num_heads=16, ff_dim=4096),
    "iwslt14-deen": replace(PAPER_PAIR_MODEL, num_heads=4, head_dim=0, ff_dim=1024),
}
PAPER_TRAIN = {
    "cnn-dailymail": PAPER_PAIR_TRAIN,
    "wmt14-ende": replace(PAPER_PAIR_TRAIN, batch_tokens=458_752, accumulate=16, learning_rate=1e-3),
    "iwslt14-deen": replace(PAPER_PAIR_TRAIN, batch_tokens=4_096),
}

# Reduced encoder-decoders.
LAPTOP_PAIR_MODEL = ModelConfig(
    encoder_layers=2,
    num_layers=2,
    model_dim=96,
    num_heads=4,
    memory_size=128,
    embedding_dropout=0.1,
    tie_weights=True,
    position_std=0.1,
)
LAPTOP_PAIR_TRAIN = TrainConfig(
    steps=1_600,
    batch_tokens=2_048,
    learning_rate=4e-3,
    warmup_steps=150,
    schedule="linear",
    adam_beta2=0.98,
    label_smoothing=0.1,
    gradient_clip=1.0,
    eval_every=200,
    keep_checkpoints=5,
)
LAPTOP = dict.fromkeys(PAIRS, (LAPTOP_PAIR_MODEL, LAPTOP_PAIR_TRAIN))
# For pairs prepared as in the experiments: a vocabulary of 32,000 would cost more than all layers.
LAPTOP["multi30k"] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, batch_tokens=1_536))
for name, steps in (("iwslt14-deen", 3_000), ("wmt14-ende", 4_000)):
    LAPTOP[name] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, batch_tokens=1_024, steps=steps, eval_every=500))
LAPTOP["cnn-dailymail"] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, steps=1_400))
NEIGHBOURS: dict[str, Any] = {"encoder_layers": 2, "source_positions": "neighbours", "source_reach": 4}
for name in PAIR_TOYS:
    LAPTOP[name] = (
        replace(COPYING_MODEL, memory_size=512, **NEIGHBOURS),
        replace(COPYING_TRAIN, steps=4_000, batch_tokens=2_048),
    )
