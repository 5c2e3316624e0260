"""The text that `--help` shows below the options of each command, examples first."""

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

Any field of the task, the model or the training can be set with field=value; `feedback-transformer list fields`
explains each. Ctrl-C saves the run; --resume continues it, with the same result as without the interruption.
"""

EVALUATE_HELP = """\
examples:
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0
  feedback-transformer evaluate runs/random-walk-feedback-laptop-0 length=1000 --episodes 100
  feedback-transformer evaluate runs/deeper/last.safetensors --seed 7

A folder stands for its best checkpoint. Fields of the task can be set with field=value, for example to see whether a
model trained on 100 actions is still right after 1000. If a corpus has moved since training, give it as data=FOLDER.
"""

GENERATE_HELP = """\
examples:
  feedback-transformer generate runs/ptb-char-feedback-laptop-0 --prompt "the meaning of " --max-tokens 200
  feedback-transformer generate runs/text-feedback-laptop-0 --temperature 0.7 --top-k 40 --samples 4 --seed 1

Text is shown as it is generated. The time and memory per token do not grow with the length of the text.
"""

REPRODUCE_HELP = """\
examples:
  feedback-transformer reproduce memory-composition --plan
  feedback-transformer reproduce depth --jobs 2
  feedback-transformer reproduce all --seeds 1
  feedback-transformer reproduce toy-tasks --measure
  feedback-transformer reproduce random-walk --scale paper --measure
  feedback-transformer reproduce speed

Trains the runs that have no record yet, each on one core, and keeps every record as soon as it is finished; if
stopped, the next call continues. Then it prints the table beside the paper's numbers, says which of the paper's claims
held, and draws the figure. --plan only lists the runs without a record, with their cost estimated from the records of
other seeds; --measure also estimates the cost of runs without such records, from a few updates. Corpora are expected in
data/CORPUS, where `feedback-transformer prepare CORPUS` puts them.
"""

REPORT_HELP = """\
examples:
  feedback-transformer report
  feedback-transformer report --results results --out report.html

Claims, verdicts, tables, learning curves, cost and commands of every experiment, made from its records alone, in one
self-contained file for a screen (dark or light), a phone or paper. The tables are also written to a .md beside it.
"""

LIST_HELP = """\
examples:
  feedback-transformer list            tasks, presets, experiments and engines
  feedback-transformer list fields     every field that field=value can set
"""

BENCH_HELP = """\
examples:
  feedback-transformer bench                                  the whole benchmark, about a quarter of an hour
  feedback-transformer bench --quick                          takes seconds: does it run?
  feedback-transformer bench --shapes B64 --contenders native transformer --measure training
  feedback-transformer bench --language                       a whole language model at a shape of the paper
  feedback-transformer bench --translation                    a whole encoder-decoder with 6 and 2 layers
  feedback-transformer bench --spans                          what short adaptive spans save, a few minutes

All contenders take turns in one run, and the best of several turns counts, because a machine is never quite idle.
Public implementations take part if they are installed:
  pip install --no-deps feedback-transformer-pytorch einops labml-nn
A whole benchmark replaces its record in results/; part of one (--quick, --shapes, ..) is written beside it. --out
chooses another place.
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

Without --from, a corpus is downloaded (an interrupted download is continued) and checked by size and hash. --from takes
a file, a folder or an archive (.zip, .tar.gz, .tar.xz, .xz). Your own text is split 90 / 5 / 5, unless it comes as
train.txt, valid.txt and test.txt. The result is a folder of memory-mapped tokens, either complete or absent.
"""

DEMO_HELP = """\
Trains a Feedback Transformer, a Transformer and an LSTM on the random walk, from the same episodes with the same
settings, and ends with a table and two pictures. Finished trainings are kept: run it again to continue, or to see the
result at once.
"""

WATCH_HELP = """\
examples:
  feedback-transformer watch runs/corridor-feedback-laptop-0
  feedback-transformer watch runs/maze-feedback-laptop-0 --out maze.mp4 --seed 3
  feedback-transformer watch runs/maze-feedback-laptop-0 --ansi --speed 20
  feedback-transformer watch runs/maze-feedback-laptop-0 --oracle size=13

A folder stands for its best checkpoint. Fields of the task can be set with field=value. An MP4 needs the program
ffmpeg; a GIF needs nothing more.
"""
