"""Speed and memory, side by side in one run: our engines, our baselines, public peers, and the floor.

command.py      add_arguments(parser), run(args): what `feedback-transformer bench` mounts
shapes.py       the four shapes, and how much arithmetic a training step of each is
contenders.py   who takes part, each as two closures: a training step, a step of generation
peers.py        public implementations, when they are installed
speed.py        alternating timings, and the floor
spans.py        training time and memory as adaptive spans shrink
worlds.py       worlds to act in: steps a second, and frames a second of learning in them
memory.py       peak extra memory of a training step, in a process of its own

Tables and charts are made from its records by `report/speed.py` and `report/spans.py`.
"""
