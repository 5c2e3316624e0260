"""What `--help` shows below the options of each command: examples first."""

from __future__ import annotations

TRAIN_HELP = """\
examples:
  feedback-transformer train random-walk
  feedback-transformer train random-walk core=transformer --seed 1
  feedback-transformer train algorithmic-3 num_layers=4 learning_rate=1e-3 steps=20000 --out runs/deeper
  feedback-transformer train random-walk --preset paper --device cuda
  feedback-transformer train random-walk engine=loop
  feedback-transformer train corridor length=100 core=lstm
  feedback-transformer train --resume runs/deeper
  torchrun --nproc-per-node 2 -m feedback_transformer train random-walk

Any field of the task, the model or the training can be set by field=value; `feedback-transformer list fields`
tells them all. Ctrl-C saves the run; --resume goes on with it, to the same end as if nothing had happened.
"""

EVALUATE_HELP = """\
examples:
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0 length=1000 --episodes 100
  feedback-transformer evaluate runs/deeper/last.safetensors --seed 7

A folder stands for its best checkpoint. Fields of the task can be set by field=value: is a model that learned on 100
actions still right after 1000? A corpus that has moved since the training is named by data=FOLDER.
"""

GENERATE_HELP = """\
examples:
  feedback-transformer generate runs/ptb-char-feedback-laptop-0 --prompt "the meaning of " --max-tokens 200
  feedback-transformer generate runs/text-feedback-laptop-0 --temperature 0.7 --top-k 40 --samples 4 --seed 1

Text is shown as it is written. The cost of a token and the memory needed do not grow with what has been written.
"""

REPRODUCE_HELP = """\
examples:
  feedback-transformer reproduce memory-composition --plan
  feedback-transformer reproduce depth --jobs 2
  feedback-transformer reproduce all --seeds 1
  feedback-transformer reproduce toy-tasks --measure
  feedback-transformer reproduce random-walk --scale paper --measure
  feedback-transformer reproduce speed

--plan tells what has no record yet, and its cost by the records of other seeds; --measure also builds what has none
and takes a few updates of it. An experiment trains what has no record yet, each run on one core, and keeps every
record as it is finished; stopped, it goes on where it was. Then it prints the table beside the paper's numbers, says
which of the paper's claims held, and draws the figure. Corpora are expected in data/CORPUS, where
`feedback-transformer prepare CORPUS` puts them.
"""

REPORT_HELP = """\
examples:
  feedback-transformer report
  feedback-transformer report --results results --out report.html

Claims, verdicts, tables, learning curves, cost and commands of every experiment, from its records alone, in one file
that needs nothing else: for a screen in dark or light, a phone, or paper. Its tables also go into a .md beside it.
"""

LIST_HELP = """\
examples:
  feedback-transformer list            tasks, presets, experiments and engines
  feedback-transformer list fields     every field that field=value can set
"""

BENCH_HELP = """\
examples:
  feedback-transformer bench                                  the whole benchmark, about a quarter of an hour
  feedback-transformer bench --quick                          seconds: does it run?
  feedback-transformer bench --shapes B64 --contenders native transformer --measure training
  feedback-transformer bench --language                       a whole language model at a shape of the paper
  feedback-transformer bench --translation                    a whole encoder-decoder, six layers and two
  feedback-transformer bench --spans                          what short adaptive spans save, a few minutes

All contenders take turns in one run and the best of several counts, because a machine is never quite idle. Public
implementations take part when they are installed:
  pip install --no-deps feedback-transformer-pytorch einops labml-nn
A whole benchmark replaces its record in results/, a part of one (--quick, --shapes, ..) goes beside it; --out tells
where else.
"""

PREPARE_HELP = """\
examples:
  feedback-transformer prepare ptb-char
  feedback-transformer prepare enwik8 --from downloads/enwik8.zip
  feedback-transformer prepare wikitext-103 --no-end-of-line --out data/wikitext-103-no-eos
  feedback-transformer prepare wikitext-2 --tokens bpe --vocab-size 8192
  feedback-transformer prepare text --from novels/ --tokens words --vocab-size 20000
  feedback-transformer prepare multi30k --from downloads/multi30k.tar.xz
  feedback-transformer prepare pairs --from talks.de talks.en --vocab-size 8000 --out data/talks

Without --from a corpus is downloaded (again from where it broke off) and checked by size and hash. --from takes a file,
a folder or an archive (.zip, .tar.gz, .tar.xz, .xz). Your own text is cut 90 / 5 / 5, unless it comes as train.txt,
valid.txt and test.txt. The result is a folder of memory-mapped tokens, complete or not there at all.
"""

DEMO_HELP = """\
The Feedback Transformer, the Transformer and the LSTM learn the random walk side by side, from the same episodes with
the same settings. Ends with a table and two pictures. Finished trainings are kept: run it again to go on, or to see the
result at once.
"""

WATCH_HELP = """\
examples:
  feedback-transformer watch runs/corridor-feedback-laptop-0
  feedback-transformer watch runs/maze-feedback-laptop-0 --out maze.mp4 --seed 3
  feedback-transformer watch runs/maze-feedback-laptop-0 --ansi --speed 20
  feedback-transformer watch runs/maze-feedback-laptop-0 --oracle size=13

A folder stands for its best checkpoint. Fields of the task can be set by field=value. GIF needs nothing more, MP4 needs
the program ffmpeg.
"""
