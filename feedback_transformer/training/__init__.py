"""How a model learns: the supervised loop, its data, its checkpoints and its records."""
