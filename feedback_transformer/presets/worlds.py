"""Worlds to act in: the paper's hyperparameters, and reduced ones."""

from __future__ import annotations

from dataclasses import replace

from feedback_transformer.config import ActConfig, ModelConfig

Settings = tuple[ModelConfig, ActConfig]

# Appendix. The water maze is trained for 500M frames; for the others the paper gives no number, so about as many. For
# the corridor it gives no settings at all, so those of the maze. Nor does it say whether Feedback's layers share keys
# and values: here they do.
PAPER_MODEL = ModelConfig(num_layers=2, model_dim=256, num_heads=4, memory_size=200)
PAPER_TRAIN = ActConfig(
    steps=5_000,
    batch_size=1024,
    bptt=100,
    learning_rate=3e-4,
    warmup_steps=0,
    gradient_clip=0.0,
    discount=0.99,
    entropy_cost=5e-4,
    eval_every=50,
    validation_episodes=256,
)
PAPER_EASY = replace(
    PAPER_TRAIN, steps=40_000, batch_size=128, eval_every=400, optimizer="rmsprop", optimizer_epsilon=0.01
)
PAPER_WORLDS: dict[str, Settings] = {
    "corridor": (PAPER_MODEL, PAPER_TRAIN),
    "maze": (PAPER_MODEL, PAPER_TRAIN),
    "maze-easy": (PAPER_MODEL, PAPER_EASY),
    "water-maze": (
        ModelConfig(num_layers=2, model_dim=64, num_heads=1, memory_size=200),
        replace(PAPER_EASY, steps=39_063, batch_size=64, bptt=200, entropy_cost=1e-4),
    ),
}
# The paper's LSTMs differ in these.
PAPER_LSTMS = {"maze": {"num_layers": "3"}, "maze-easy": {"num_layers": "3"}, "water-maze": {"learning_rate": "0.0004"}}

# Reduced: small models, fewer frames. The bias over distance and the corridor's curriculum are ours, for all models.
LAPTOP_MODEL = ModelConfig(
    num_layers=2,
    model_dim=64,
    num_heads=2,
    memory_size=200,
    position_slopes=(2.0, 0.1),
    embedding_std=0.5,
    scale_residuals=False,
)
LAPTOP_TRAIN = ActConfig(
    steps=800,
    batch_size=128,
    bptt=50,
    learning_rate=1e-3,
    warmup_steps=50,
    schedule="linear",
    adam_beta2=0.98,
    gradient_clip=0.5,
    entropy_cost=1e-3,
    eval_every=50,
    validation_episodes=128,
    test_episodes=512,
)
LAPTOP_WORLDS: dict[str, Settings] = {
    "corridor": (
        replace(LAPTOP_MODEL, memory_size=4),
        replace(
            LAPTOP_TRAIN,
            steps=600,
            batch_size=64,
            learning_rate=2e-3,
            optimizer_epsilon=1e-3,  # when all episodes succeed gradients vanish, and so must the steps
            bptt=40,
            # A longer corridor must not look like a failure to values that were learned in a shorter one.
            discount=0.997,
            entropy_cost=1e-3,  # with more, dawdling pays
            stagger=True,
            curriculum=("length=3", "length=6", "length=12", "length=20"),
            curriculum_gate=0.8,
            curriculum_deadline=0.8,
        ),
    ),
    "maze": (replace(LAPTOP_MODEL, memory_size=100), LAPTOP_TRAIN),
    "maze-easy": (replace(LAPTOP_MODEL, memory_size=100), LAPTOP_TRAIN),
    "water-maze": (replace(LAPTOP_MODEL, memory_size=50), LAPTOP_TRAIN),
}
# And smaller worlds, as fields of the task.
WORLD_FIELDS = {
    "maze": {"size": "5", "num_objects": "4", "episode_steps": "100"},
    "maze-easy": {"size": "5", "num_objects": "4", "episode_steps": "100"},
    "water-maze": {"size": "5", "episode_steps": "50"},
}
