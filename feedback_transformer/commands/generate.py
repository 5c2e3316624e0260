"""`feedback-transformer generate`: text from a trained language model, shown as it is made."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import torch

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import add_machine_options, check_device
from feedback_transformer.config import ConfigError, parse_assignments
from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.corpus import Corpus
from feedback_transformer.data.vocabulary import Tokens
from feedback_transformer.decoding import Sampling, generate, text_pieces
from feedback_transformer.tasks.language import Language
from feedback_transformer.training.loading import load_run, take_corpus

HELP = """\
examples:
  feedback-transformer generate runs/ptb-char-feedback-laptop-0 --prompt "the meaning of " --max-tokens 200
  feedback-transformer generate runs/text-feedback-laptop-0 --temperature 0.7 --top-k 40 --samples 4 --seed 1

Text is shown as it is generated. The time and memory per token do not grow with the length of the text.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument(
        "overrides", nargs="*", default=[], metavar="data=FOLDER", help="where the corpus is, if it has moved"
    )
    sub.add_argument("--prompt", help="text to continue (a new line, or how the training text begins)")
    sub.add_argument("--max-tokens", type=int, default=500, help="number of tokens to generate (500)")
    sub.add_argument("--temperature", type=float, default=1.0, help="0 always takes the likeliest token (1)")
    sub.add_argument("--top-k", type=int, default=0, help="sample among the k likeliest tokens (0: among all)")
    sub.add_argument(
        "--top-p", type=float, default=1.0, help="sample among the likeliest with this total probability (1)"
    )
    sub.add_argument("--samples", type=int, default=1, help="number of texts, generated in parallel (1)")
    add_machine_options(sub)


def run(options: argparse.Namespace) -> int:
    device = check_device(options.device)
    for name in ("max_tokens", "samples"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} = {getattr(options, name)} must be 1 or more")
    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    assignments = parse_assignments(options.overrides)
    data = take_corpus(assignments)
    if assignments:
        raise ConfigError(f"{', '.join(assignments)} cannot be set for generate, only data=FOLDER")
    run, model = load_run(options.checkpoint, device, data)
    if not isinstance(run.task, Language):
        raise ConfigError(
            f"{options.checkpoint} was trained on {run.task_name}, which has no text to generate; choose a language "
            "model"
        )
    if options.prompt == "":
        raise ConfigError("--prompt is empty; give it some text, or leave it out to begin as the training text does")
    vocabulary = run.task.corpus.vocabulary
    tokens = first_tokens(run.task.corpus) if options.prompt is None else vocabulary.encode(options.prompt)
    prompt = torch.from_numpy(tokens.astype("int64")).to(device)
    random = torch.Generator(device).manual_seed(options.seed or 0)
    stream = itertools.islice(generate(model, prompt.expand(options.samples, -1), sampling, random), options.max_tokens)
    if options.samples == 1:
        for piece in text_pieces(vocabulary.decode, prompt.tolist(), (int(token) for token in stream)):
            print(piece, end="", flush=True)
        print()
        return 0
    for number, text in enumerate(torch.stack(list(stream), dim=1).tolist(), start=1):
        print(f"--- {number}\n{vocabulary.decode(prompt.tolist() + text)}")
    return 0


def first_tokens(corpus: Corpus) -> Tokens:
    """A new line, or where the vocabulary has none, the first token of the training text."""
    try:
        tokens = corpus.vocabulary.encode("\n")
    except DataError:
        return corpus.train[:1]
    return tokens if len(tokens) else corpus.train[:1]


COMMANDS = (Command("generate", "generate text with a trained language model", HELP, add_arguments, run),)
