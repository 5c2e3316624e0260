"""Speed and memory, side by side in one run: our engines, our baselines, public peers, and the floor.

shapes.py       the shapes, and how much arithmetic a training step of each is
contenders.py   what is compared, each as two closures: a training step, a step of generation
peers.py        public implementations, when they are installed
speed.py        alternating timings, and the floor
whole_models.py, language.py, translation.py   the paper's models from tokens to updated weights, and back to tokens
spans.py        training time and memory as adaptive spans shrink
worlds.py       environments: steps per second, and frames per second of learning in them
memory.py       peak extra memory of a training step, in its own process

The command is `commands/bench.py`. Tables and charts are made from its records by the
modules of the same names in `report/`.
"""
