"""Appendix, Figure 6: maze navigation without turning (left), and the water maze (right)."""

from __future__ import annotations

from feedback_transformer.experiments.maze import SMALL_MAZE, world_experiment

EXPERIMENTS = (
    world_experiment("maze-easy", "Maze navigation, easy", "Appendix, Figure 6 (left)", SMALL_MAZE),
    world_experiment(
        "water-maze", "Water maze", "Appendix, Figure 6 (right)",
        "5 x 5 cells instead of 15 x 15, 50 steps instead of 200, 0.1M parameters (LSTM: 0.07M), 5.1M frames instead "
        "of 500M, three seeds instead of ten",
    ),
)  # fmt: skip
