"""Named configurations: the paper's exact hyperparameters, and reduced ones for a laptop and for the tests.

smoke     seconds: does everything run?
laptop    minutes on one core, reduced
paper     the published hyperparameters (Table "Hyperparameters for language modeling experiments")
"""

from __future__ import annotations

from dataclasses import replace

from feedback_transformer.config import ConfigError, ModelConfig, TrainConfig, nearest
from feedback_transformer.environments.settings import LAPTOP_WORLDS, PAPER_WORLDS, WORLD_FIELDS
from feedback_transformer.tasks import CORPORA, PAIR_TOYS, PAIRS, STATES, TASKS, WORLDS, make_task
from feedback_transformer.tasks.settings import (
    COPYING_MODEL,
    COPYING_TRAIN,
    LAPTOP_STATES,
    LAPTOP_TOYS,
    SMOKE_STATES,
    TOY_FIELDS,
)
from feedback_transformer.training.run import RunConfig

SCALES = {
    "smoke": "takes seconds; checks that everything runs, learns nothing",
    "laptop": "reduced: minutes to an hour on one core",
    "paper": "the published hyperparameters",
    "paper-small": "the same for the paper's smaller model (wikitext-103 only)",
}

SMALLER = {("wikitext-103", "paper"): "paper-small"}  # the presets that there are two of

# The columns of the paper's table. Their parameter counts (3.2M, 10.7M, 77M, 44M, 139M) are those of unshared keys and
# values, and for WikiText-103 of tied adaptive inputs and outputs with these cutoffs. Tied embeddings start at
# 1 / sqrt(D): at a spread of 1 they would make logits of spread sqrt(D), and a first loss of hundreds of nats.
WORD_CUTOFFS = (20_000, 40_000, 200_000)
PAPER_MODELS = {
    "toy": ModelConfig(num_layers=4, model_dim=256, num_heads=4, memory_size=100, shared_kv=False, dropout=0.2),
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

# The paper gives no number of updates for the toy tasks; these are the ones it gives for char-PTB.
PAPER_TRAIN = {
    "toy": TrainConfig(
        steps=15_000,
        finetune_steps=1_000,
        batch_size=512,
        bptt=64,
        learning_rate=1e-4,
        warmup_steps=1_000,
        gradient_clip=0.1,
        train_episodes=10_000,
        eval_every=250,
    ),
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
PAPER_MODELS |= {
    "cnn-dailymail": PAPER_PAIR_MODEL,
    "wmt14-ende": replace(PAPER_PAIR_MODEL, model_dim=1024, head_dim=0, num_heads=16, ff_dim=4096),
    "iwslt14-deen": replace(PAPER_PAIR_MODEL, num_heads=4, head_dim=0, ff_dim=1024),
}
PAPER_TRAIN |= {
    "cnn-dailymail": PAPER_PAIR_TRAIN,
    "wmt14-ende": replace(PAPER_PAIR_TRAIN, batch_tokens=458_752, accumulate=16, learning_rate=1e-3),
    "iwslt14-deen": replace(PAPER_PAIR_TRAIN, batch_tokens=4_096),
}

# The window must hold a whole string and its answer.
PAPER_WINDOWS = {"copy": 1024, "reverse": 1024, "counting-1k": 2048}

LAPTOP: dict[str, tuple[ModelConfig, TrainConfig]] = {**LAPTOP_TOYS, **LAPTOP_STATES}

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
for name in CORPORA:
    ends = {"tie_weights": True, "cutoffs": (2_000, 10_000), "embedding_std": 0.2} if name in WORDS else {}
    LAPTOP[name] = (replace(LAPTOP_LANGUAGE_MODEL, **ends), LAPTOP_LANGUAGE_TRAIN)  # type: ignore[arg-type]


LAPTOP.update(LAPTOP_WORLDS)

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
for name in PAIRS:
    LAPTOP[name] = (LAPTOP_PAIR_MODEL, LAPTOP_PAIR_TRAIN)
# For pairs prepared as in the experiments: a vocabulary of 32,000 would cost more than all layers.
LAPTOP["multi30k"] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, batch_tokens=1_536))
for name, steps in (("iwslt14-deen", 3_000), ("wmt14-ende", 4_000)):
    LAPTOP[name] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, batch_tokens=1_024, steps=steps, eval_every=500))
LAPTOP["cnn-dailymail"] = (LAPTOP_PAIR_MODEL, replace(LAPTOP_PAIR_TRAIN, steps=1_400))
for name in PAIR_TOYS:
    LAPTOP[name] = (
        replace(COPYING_MODEL, encoder_layers=2, memory_size=512, source_positions="neighbours", source_reach=4),
        replace(COPYING_TRAIN, steps=4_000, batch_tokens=2_048),
    )


def preset(task_name: str, scale: str = "laptop", core: str = "feedback", seed: int = 0) -> RunConfig:
    """A run of that task at that scale.

    >>> preset("random-walk", "paper").model.num_layers
    4
    """
    task = make_task(task_name)
    if scale not in SCALES:
        raise ConfigError(f"there is no preset {scale!r}{nearest(scale, SCALES)}")
    if scale.startswith("paper"):
        model, train = paper(task_name, scale)
    else:
        model, train = LAPTOP[task_name]
        task = make_task(task_name, (WORLD_FIELDS | TOY_FIELDS).get(task_name))
    if scale == "smoke":
        model = replace(model, model_dim=16, head_dim=0, ff_dim=32, memory_size=min(32, model.memory_size), cutoffs=())
        task = make_task(task_name, SMOKE_TASKS.get(task_name, {"length": "10"}))
        train = replace(train, **SMOKE_TRAIN)  # type: ignore[arg-type]
    # Layers share keys and values where they share a memory; those of a Transformer read memories of their own.
    shared = model.shared_kv and core != "transformer"
    return RunConfig(task_name, task, replace(model, core=core, shared_kv=shared), train, seed)


def configured(task_name: str, scale: str, seed: int, fields: dict[str, str]) -> RunConfig:
    """The preset for the core named in the fields, with these fields changed."""
    return preset(task_name, scale, fields.get("core", fields.get("model.core", "feedback")), seed).override(fields)


def paper(task_name: str, scale: str) -> tuple[ModelConfig, TrainConfig]:
    """Model and training as published."""
    if scale == "paper-small":
        if (task_name, "paper") not in SMALLER:
            raise ConfigError(f"there is no preset 'paper-small' of {task_name}, only of wikitext-103")
        return PAPER_MODELS["wikitext-103-small"], replace(PAPER_TRAIN["wikitext-103"], span_loss=0.0)
    if task_name in PAPER_MODELS:
        return PAPER_MODELS[task_name], PAPER_TRAIN[task_name]
    if task_name in WORLDS:
        return PAPER_WORLDS[task_name]
    if task_name in CORPORA or task_name in PAIRS or task_name in STATES:
        raise ConfigError(f"the paper has no experiment on {task_name}; start from --preset laptop")
    model = PAPER_MODELS["toy"]
    if task_name in PAIR_TOYS:
        model = replace(model, encoder_layers=4, memory_size=512, source_positions="relative")
    return replace(model, memory_size=PAPER_WINDOWS.get(task_name, model.memory_size)), PAPER_TRAIN["toy"]


SMOKE_TRAIN = {
    "steps": 20,
    "batch_size": 8,
    "bptt": 8,
    "bptt_start": 0,
    "eval_every": 10,
    "curriculum": (),
    "validation_episodes": 8,
    "test_episodes": 8,
    "warmup_steps": 5,
}
SMOKE_TASKS = {
    **{name: {"length": "6", "test_length": "8"} for name in ("copy", "reverse", *PAIR_TOYS)},
    **SMOKE_STATES,
    **{name: {"size": "5", "episode_steps": "10"} for name in WORLDS},
    "corridor": {"length": "3"},
    **{name: {"valid_tokens": "1000"} for name in CORPORA},
    **{name: {"valid_pairs": "20", "test_pairs": "20", "extra_length": "10", "shortest": "0"} for name in PAIRS},
}

assert set(LAPTOP) == set(TASKS), "every task has a laptop preset"
