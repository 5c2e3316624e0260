"""Commands for trained encoder-decoders: `translate`, `summarize`, `tune`, `average` and `score`.

`tune` writes the decoding settings that were best on the validation set to decoding.json in the run's folder, and
`translate`, `summarize` and `evaluate` use them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import nn

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import add_machine_options, check_device, positive_number
from feedback_transformer.config import ConfigError, override, parse_assignments
from feedback_transformer.data.corpora import DataError
from feedback_transformer.decoding import Sampling
from feedback_transformer.tasks.text_scores import bleu, rouge, tokenized_bleu
from feedback_transformer.tasks.translation import TOKENIZATIONS, Translation
from feedback_transformer.training.averaging import average
from feedback_transformer.training.checkpoint import write_json
from feedback_transformer.training.loading import load_run, take_corpus
from feedback_transformer.training.progress import show_score
from feedback_transformer.training.run import RunConfig

DECODING = "decoding.json"
SEARCHED = ("beam", "length_penalty", "block_ngrams", "shortest", "length_ratio", "extra_length")
FILE_LINES = 32  # read at a time from a file; from a pipe or terminal each line is answered before the next is read
DEFAULT_GRID = {"length_penalty": "0,0.4,0.8,1.2,1.6"}

TRANSLATE_EXAMPLES = """\
examples:
  echo "A dog runs." | feedback-transformer translate runs/multi30k-feedback-laptop-0
  feedback-transformer translate runs/m30k --input test.en --output test.de beam=5 length_penalty=0.6
  feedback-transformer translate runs/m30k/average.safetensors --temperature 0.8 --seed 1 < test.en

"""
SUMMARIZE_EXAMPLES = """\
examples:
  feedback-transformer summarize runs/cnn-dailymail-feedback-laptop-0 --input articles.txt
  feedback-transformer summarize runs/cnn --input articles.txt --output short.txt block_ngrams=3 shortest=30

"""
SEARCH_HELP = """\
Writes one line for each line read, at once; an empty line stays empty. The search can be set with field=value: beam,
length_penalty, block_ngrams, shortest, length_ratio, extra_length. The defaults are what `tune` found, if it was run.
"""
TUNE_HELP = """\
examples:
  feedback-transformer tune runs/multi30k-feedback-laptop-0
  feedback-transformer tune runs/cnn length_penalty=0.6,1,1.4 shortest=30,50,70 beam=4

Tries every combination on the validation set and writes the best to decoding.json in the run's folder, where translate,
summarize and evaluate find it.
"""
AVERAGE_HELP = """\
examples:
  feedback-transformer average runs/multi30k-feedback-laptop-0 --last 5
  feedback-transformer evaluate runs/multi30k-feedback-laptop-0/average.safetensors

Averages the weights of the last evaluations, which the training must have kept: keep_checkpoints=N.
"""
SCORE_HELP = """\
examples:
  feedback-transformer score translated.de reference.de --language de
  feedback-transformer score summaries.txt references.txt --measure rouge

BLEU is sacrebleu's, with its signature, and the tokenised BLEU with compounds split that the paper reports. For ROUGE,
a line counts as one sentence; `evaluate` knows the sentences of a summary and computes ROUGE-L over them.
"""


def add_translate_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument("overrides", nargs="*", default=[], metavar="field=value", help="set a field of the search")
    sub.add_argument("--input", type=Path, metavar="FILE", help="read from this file (standard input)")
    sub.add_argument("--output", type=Path, metavar="FILE", help="write to this file (standard output)")
    sub.add_argument("--lines", type=positive_number, help=f"lines to read at a time (1; {FILE_LINES} from a file)")
    sub.add_argument("--temperature", type=float, help="sample targets at this temperature instead of searching")
    sub.add_argument("--top-k", type=int, default=0, help="sample among the k likeliest tokens (0: among all)")
    sub.add_argument("--top-p", type=float, default=1.0, help="sample among the likeliest with this total probability")
    add_machine_options(sub)


def add_tune_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument(
        "overrides", nargs="*", default=[], metavar="field=a,b,c", help="values to try (length_penalty, 0 to 1.6)"
    )
    add_machine_options(sub)


def add_average_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("folder", type=Path, help="the folder of a run")
    sub.add_argument("--last", type=positive_number, help="number of evaluations (all that are kept)")
    sub.add_argument("--out", type=Path, help="file to write (FOLDER/average.safetensors)")


def add_score_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("hypotheses", type=Path, help="the generated texts, one per line")
    sub.add_argument("references", type=Path, help="the references, one per line")
    sub.add_argument("--measure", choices=("bleu", "rouge"), default="bleu", help="bleu or rouge (bleu)")
    sub.add_argument(
        "--tokenization",
        choices=TOKENIZATIONS,
        default="13a",
        help="sacrebleu's tokenizer (13a); none for text that is tokenised already",
    )
    sub.add_argument("--language", default="en", help="language of the text, for tokenised BLEU (en)")


# ------------------------------------------------------------------------------------------------ commands


def load_translation(path: Path, device: str, data: str | None) -> tuple[RunConfig, Translation, nn.Module]:
    """A trained encoder-decoder; `data` is where its pairs are, if they have moved."""
    run, model = load_run(path, device, data)
    if not isinstance(run.task, Translation):
        raise ConfigError(
            f"{path} was trained on {run.task_name}, which has no text to translate; choose one trained on text pairs"
        )
    return run, run.task, model


def tuned(run: RunConfig, path: Path) -> RunConfig:
    """The run with the search settings that `tune` left beside its checkpoint."""
    kept = (path if path.is_dir() else path.parent) / DECODING
    if not isinstance(run.task, Translation) or not kept.is_file():
        return run
    try:
        return run.override(
            {f"task.{name}": value for name, value in json.loads(kept.read_text(encoding="utf-8"))["decoding"].items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{kept} is damaged ({error}); remove it, or tune again") from None


def run_translate(options: argparse.Namespace) -> int:
    device = check_device(options.device)
    assignments = parse_assignments(options.overrides)
    run, _, model = load_translation(options.checkpoint, device, take_corpus(assignments))
    task = override(tuned(run, options.checkpoint).task, assignments)
    assert isinstance(task, Translation)
    if options.output is not None and options.input is not None and options.output.resolve() == options.input.resolve():
        raise ConfigError(f"--output {options.output} is also the input and would be overwritten; choose another file")
    if options.temperature is None and (options.top_k or options.top_p != 1):
        raise ConfigError("--top-k and --top-p are for sampling; give --temperature too, for example --temperature 1")
    search, draw = task.search(), None
    if options.temperature is not None:
        sampling = Sampling(options.temperature, options.top_k, options.top_p)
        draw = (sampling, torch.Generator(device).manual_seed(options.seed or 0))
    count = options.lines or (1 if options.input is None else FILE_LINES)
    lines, words, start = 0, 0, time.monotonic()
    with _opened(options.input, "r") as source, _opened(options.output, "w") as target:
        for texts in _groups(source, count, options.input):
            written = task.write(model, texts, search, torch.device(device), draw)
            for text in written:
                print(text.replace("\n", " "), file=target)
            target.flush()
            lines, words = lines + len(written), words + sum(len(text.split()) for text in written)
    seconds = time.monotonic() - start
    speed = f"{words / max(seconds, 1e-9):,.1f} words/s"
    print(f"{lines:,} line{'s' * (lines != 1)}, {words:,} word{'s' * (words != 1)}, {speed}", file=sys.stderr)
    return 0


def _opened(path: Path | None, mode: str) -> Any:
    """A file whose lines end at newlines only, or the standard input or output."""
    if path is None:
        stream = sys.stdin if mode == "r" else sys.stdout
        if mode == "r" and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", newline="\n")
        return nullcontext(stream)
    try:
        return open(path, mode, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"cannot open {path} ({error.strerror}); choose another file") from None


def _groups(source: TextIO, count: int, path: Path | None) -> Iterator[list[str]]:
    try:
        while lines := list(itertools.islice(iter(source.readline, ""), count)):
            yield lines
    except UnicodeDecodeError as error:
        raise DataError(f"{path or 'the input'} is not UTF-8 ({error.reason}); convert it to UTF-8") from None


def evaluate(task: Translation, model: nn.Module, device: torch.device, title: str, as_json: bool) -> int:
    """Print all scores on the test set, how they were computed, and the speed of decoding."""
    data = task.evaluation("test", 0, 0)
    scores = task.score(model, data, device)
    if as_json:
        print(json.dumps({**scores, "signature": task.signature()}))
        return 0
    print(f"{title}: {', '.join(show_score(*item) for item in scores.items())}")
    print(f"{task.signature()}; {' '.join(f'{name}={getattr(task, name)}' for name in SEARCHED)}")
    return 0


def run_tune(options: argparse.Namespace) -> int:
    device = torch.device(check_device(options.device))
    assignments = parse_assignments(options.overrides)
    run, own, model = load_translation(options.checkpoint, options.device, take_corpus(assignments))
    grid = assignments or DEFAULT_GRID
    pairs = own.evaluation("validation", 0, run.seed).pairs
    results: list[tuple[float, dict[str, str]]] = []
    for values in itertools.product(*(texts.split(",") for texts in grid.values())):
        fields = dict(zip(grid, values, strict=True))
        task = override(own, fields)
        if replace(task, **{name: getattr(own, name) for name in SEARCHED}) != own:
            raise ConfigError(f"{', '.join(fields)} cannot be tuned; choose among {', '.join(SEARCHED)}")
        written = task.write(model, [source for source, _ in pairs.texts], task.search(), device)
        score = task.text_scores(written, [target for _, target in pairs.texts])[task.metric]
        results.append((score, fields))
        print(f"{' '.join(f'{name}={value}' for name, value in fields.items())}: {show_score(task.metric, score)}")
    score, fields = max(results, key=lambda result: result[0])
    folder = options.checkpoint if options.checkpoint.is_dir() else options.checkpoint.parent
    write_json(folder / DECODING, {"decoding": fields, "validation": {own.metric: score}, "pairs": len(pairs)})
    best = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"the best is {best} ({show_score(own.metric, score)}), kept in {folder / DECODING}")
    return 0


def run_average(options: argparse.Namespace) -> int:
    out = options.out or options.folder / "average.safetensors"
    used = average(options.folder, options.last, out)
    print(f"{out} is the mean of {', '.join(path.stem for path in used)}")
    return 0


def run_score(options: argparse.Namespace) -> int:
    written, wanted = (_read(path) for path in (options.hypotheses, options.references))
    if len(written) != len(wanted):
        raise DataError(
            f"{options.hypotheses} has {len(written):,} lines and {options.references} has {len(wanted):,}; "
            "they must have the same number, since each line is scored against the same line of the other"
        )
    if not written:
        raise DataError(f"{options.hypotheses} is empty; give a file with one text per line")
    if options.measure == "rouge":
        print(", ".join(show_score(*item) for item in rouge(written, wanted).items()))
        return 0
    score, signature = bleu(written, wanted, options.tokenization)
    tokenized = "" if options.tokenization == "none" else f", {_tokenized(written, wanted, options.language)}"
    print(f"{show_score('bleu', score)}{tokenized}\n{signature}")
    return 0


def _tokenized(written: Sequence[str], wanted: Sequence[str], language: str) -> str:
    return show_score("tokenized_bleu", tokenized_bleu(written, wanted, language))


def _read(path: Path) -> list[str]:
    with _opened(path, "r") as file:
        return [line.strip() for lines in _groups(file, FILE_LINES, path) for line in lines]


COMMANDS = (
    Command(
        "translate",
        "translate line by line with a trained model",
        TRANSLATE_EXAMPLES + SEARCH_HELP,
        add_translate_arguments,
        run_translate,
    ),
    Command(
        "summarize",
        "summarize articles, line by line with a trained model",
        SUMMARIZE_EXAMPLES + SEARCH_HELP,
        add_translate_arguments,
        run_translate,
    ),
    Command("tune", "find the best search settings on the validation set", TUNE_HELP, add_tune_arguments, run_tune),
    Command("average", "average a run's last checkpoints", AVERAGE_HELP, add_average_arguments, run_average),
    Command("score", "compute BLEU or ROUGE of a file against a reference", SCORE_HELP, add_score_arguments, run_score),
)
