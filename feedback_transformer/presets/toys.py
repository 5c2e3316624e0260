"""Toy tasks and state tracking, which train in minutes on one core, and the paper's toy tasks.

Small embeddings, unscaled residuals, a learned bias over distance and curricula are ours, the same for all models (but
in reverse: `experiments/toy_tasks.py`).
"""

from __future__ import annotations

from dataclasses import replace

from feedback_transformer.config import ModelConfig, TrainConfig

Settings = tuple[ModelConfig, TrainConfig]

# The paper gives no number of updates for the toy tasks; these are the ones it gives for char-PTB.
PAPER_MODEL = ModelConfig(num_layers=4, model_dim=256, num_heads=4, memory_size=100, shared_kv=False, dropout=0.2)
PAPER_TRAIN = TrainConfig(
    steps=15_000,
    finetune_steps=1_000,
    batch_size=512,
    bptt=64,
    learning_rate=1e-4,
    warmup_steps=1_000,
    gradient_clip=0.1,
    train_episodes=10_000,
    eval_every=250,
)
# The window must hold a whole string and its answer.
PAPER_WINDOWS = {"copy": 1024, "reverse": 1024, "counting-1k": 2048}

LAPTOP_MODEL = ModelConfig(
    num_layers=2,
    model_dim=64,
    num_heads=2,
    memory_size=100,
    position_slopes=(2.0, 0.1),
    embedding_std=0.2,
    scale_residuals=False,
)

LAPTOP_TRAIN = TrainConfig(
    steps=6_400,
    batch_size=64,
    bptt=16,
    bptt_start=8,
    bptt_warmup=0.3,
    learning_rate=2e-3,
    warmup_steps=200,
    schedule="linear",
    adam_beta2=0.98,
    gradient_clip=0.1,
    train_episodes=0,
    validation_episodes=200,
    eval_every=500,
)

LAPTOP_TOYS: dict[str, Settings] = {
    "random-walk": (
        LAPTOP_MODEL,
        replace(LAPTOP_TRAIN, curriculum=("length=6", "length=12", "length=25", "length=50")),
    ),
    "counting-50": (replace(LAPTOP_MODEL, memory_size=128), replace(LAPTOP_TRAIN, steps=3_000, bptt=32, bptt_start=16)),
}
# To generalise from 40 digits to 400, a model has to look them up by many of their neighbours, at any position.
COPYING_MODEL = replace(
    LAPTOP_MODEL,
    num_heads=4,
    head_dim=32,
    memory_size=1024,
    position_slopes=(2.0, 0.5, 0.1, 0.0),
    position_std=0.3,
    position_reach=16,
    log_scale=True,
)
COPYING_TRAIN = replace(
    LAPTOP_TRAIN, curriculum=("length=4", "length=10", "length=20"), validation_episodes=32, test_episodes=256
)
# A block holds a string and its answer, so that gradients reach from the written digits to the read ones.
LAPTOP_TOYS["copy"] = (
    COPYING_MODEL,
    replace(COPYING_TRAIN, steps=5_120, batch_size=24, bptt=128, bptt_start=0, eval_every=640),
)
# Reversed, what was read last was written first, so every neighbour of a digit needs a place of its own in the memory:
# six heads begin as those that read the memories one to six steps back.
LAPTOP_TOYS["reverse"] = (
    replace(
        COPYING_MODEL,
        num_heads=8,
        position_slopes=(4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 0.1, 0.0),
        position_peaks=(1, 2, 3, 4, 5, 6, 0, 0),
    ),
    replace(
        COPYING_TRAIN,
        steps=8_192,
        batch_size=12,
        bptt=128,
        bptt_start=0,
        eval_every=1_024,
        # How to look digits up is found where few places compete, by three neighbours, too few for 400 digits. Where
        # some are misread, it has to be remembered what comes next. In short chains that would end in counting, and so
        # would whole answers from the beginning.
        curriculum=(
            "chained=2,cues=0.9,later=0,misread=0,gate=0.85",
            "chained=2,cues=0.9,later=0,misread=0.1,gate=0.87",
        ),
        curriculum_deadline=0.8,
    ),
)
LAPTOP_TOYS["counting-1k"] = (
    # The memory starts as 96% embedding: what upper layers make of a count is a disturbance in an average over tokens.
    replace(COPYING_MODEL, head_dim=16, memory_size=2048, log_scale=False, memory_bottom=4.0),
    replace(
        LAPTOP_TRAIN,
        steps=6_000,
        bptt=64,
        bptt_start=16,
        learning_rate=1e-3,
        adam_beta2=0.99,
        # It counts by averages, and those of n and n + 1 differ by one part in 2n: step by step, and in the end with a
        # small rate.
        curriculum=tuple(f"length={n}" for n in (10, 15, 22, 33, 50, 75, 110, 160, 240, 360, 540, 800)),
        curriculum_gate=0.999,
        curriculum_deadline=0.7,
        validation_episodes=64,
    ),
)
# Programs first print x alone, then one more variable per stage: asked for all at once, a model keeps a bag of values
# and never learns which belongs to which variable. Conditions come next, and make up most programs until they are
# learned: first against numbers, which need one value to be looked up, not two. A block has to hold a condition and the
# print that shows its effect. Last, programs get longer: a mistake is carried along to the end of a program, so short
# ones have to be learned well.
EASY = "print_weight=2,if_weight=0,echo=0.3,gate=0.95"
CONDITIONS = "print_weight=0.5,echo=1,echoing=1"
for name, variables, steps in (("algorithmic-3", 3, 12_000), ("algorithmic-5", 5, 14_000)):
    LAPTOP_TOYS[name] = (
        replace(LAPTOP_MODEL, num_heads=4, head_dim=16, position_slopes=(3.0, 3.0, 0.3, 0.05), position_std=0.3),
        replace(
            LAPTOP_TRAIN,
            steps=steps,
            schedule="cosine",
            batch_size=32,
            bptt=64,
            bptt_start=0,
            gradient_clip=0.5,
            warmup_steps=300,
            curriculum_gate=0.985,
            curriculum_deadline=0.85,
            curriculum=(
                *(f"length=12,min_length=3,printable={some},{EASY}" for some in range(1, variables)),
                f"length=12,min_length=4,{EASY}",
                f"length=10,min_length=4,if_weight=4,numbers=1,{CONDITIONS},gate=0.96",
                f"length=12,min_length=4,if_weight=3,{CONDITIONS}",
                "length=25,min_length=4,if_weight=2,echo=1,echoing=0.8",
                "length=50,min_length=8,if_weight=2,echo=0.9,echoing=0.8",
                "length=100,min_length=16,echo=0.7,echoing=0.7",
            ),
        ),
    )

# Fields of the task itself.
COPYING_FIELDS = {"min_length": "1", "plain": "0.7"}
TOY_FIELDS = {name: {**COPYING_FIELDS, "chained": "4"} for name in ("copy", "reverse")}
# Or a model counts the digits, which ends with the training lengths:
TOY_FIELDS["copy"]["anywhere"] = "0.5"
# In short strings a place is known by its distance from an end.
TOY_FIELDS["reverse"] |= {"cues": "0.5", "chained": "8", "min_length": "30", "later": "0.5", "misread": "0.03"}
TOY_FIELDS |= dict.fromkeys(("copy-pairs", "reverse-pairs"), COPYING_FIELDS)
TOY_FIELDS["counting-1k"] = {"small": "1.0"}

# State tracking, beyond the paper. The window holds the longest test string, so where a model fails it is not for lack
# of memory. Distances that do not occur in training strings share one entry.
FORMAL_MODEL = replace(LAPTOP_MODEL, memory_size=260, position_slopes=(2.0, 0.3), position_reach=32, position_std=0.3)
FORMAL_TRAIN = replace(
    LAPTOP_TRAIN,
    steps=1_500,
    bptt=48,
    bptt_start=16,
    learning_rate=1e-3,
    curriculum=("length=4,min_length=1", "length=10,min_length=1", "length=20,min_length=1"),
    curriculum_gate=0.95,
)
LAPTOP_STATES: dict[str, Settings] = {
    "parity": (FORMAL_MODEL, FORMAL_TRAIN),
    "arithmetic": (FORMAL_MODEL, replace(FORMAL_TRAIN, steps=8_000)),
    "brackets": (FORMAL_MODEL, replace(FORMAL_TRAIN, steps=8_000)),
    "s5-swaps": (
        FORMAL_MODEL,
        replace(LAPTOP_TRAIN, steps=4_000, bptt=32, curriculum=("length=4", "length=8", "length=16")),
    ),
    "s5": (
        replace(FORMAL_MODEL, model_dim=128, head_dim=64, ff_dim=512, memory_top=2.0),
        replace(
            LAPTOP_TRAIN,
            steps=16_000,
            bptt=32,
            schedule="cosine",
            curriculum=("length=1", "length=2", "length=4", "length=12"),
            curriculum_deadline=0.7,  # 120 x 120 products take their time
        ),
    ),
    "flip-flop": (
        replace(LAPTOP_MODEL, memory_size=512),
        replace(LAPTOP_TRAIN, steps=1_000, batch_size=32, bptt=64, bptt_start=16, eval_every=250),
    ),
    "recall": (
        replace(LAPTOP_MODEL, memory_size=100),
        replace(
            LAPTOP_TRAIN,
            steps=4_000,
            bptt=32,
            bptt_start=16,
            curriculum=("num_pairs=2,length=12", "num_pairs=6,length=36"),
        ),
    ),
}

SMOKE_STATES = {
    **{
        name: {"length": "6", "test_length": "8", "min_test_length": "6"}
        for name in ("parity", "arithmetic", "brackets")
    },
    **{name: {"length": "4", "test_length": "8"} for name in ("s5-swaps", "s5")},
    "recall": {"num_pairs": "2", "num_keys": "4", "num_values": "4", "length": "10"},
}
