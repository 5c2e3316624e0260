"""Language modelling beside the paper: the parameters of its models, and the speed at one of its shapes."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.presets import PAPER_MODELS
from feedback_transformer.report.speed import Table
from feedback_transformer.report.tables import markdown_table
from feedback_transformer.training.record import read_record

Record = dict[str, Any]


class Column(NamedTuple):
    """A column of the paper's table of hyperparameters."""

    title: str
    command: str
    model: str
    inputs: int
    outputs: int
    millions: float  # the paper's parameters


PAPER_COLUMNS = (
    Column("Random Walk", "random-walk --preset paper", "toy", 4, 64, 3.2),
    Column("char-PTB", "ptb-char --preset paper", "ptb-char", 50, 50, 10.7),
    Column("Enwik8", "enwik8 --preset paper", "enwik8", 256, 256, 77),
    Column("WikiText-103 small", "wikitext-103 --preset paper-small", "wikitext-103-small", 267_735, 267_735, 44),
    Column("WikiText-103 large", "wikitext-103 --preset paper", "wikitext-103", 267_735, 267_735, 139),
)
SHARED_MILLIONS = 126  # the Feedback Transformer of the paper's WikiText-103 results: keys and values shared


def count_parameters(column: Column, shared_kv: bool = False, core: str = "feedback") -> int:
    """Of the model as it is built, without the memory that its weights would need."""
    config = replace(PAPER_MODELS[column.model], shared_kv=shared_kv, core=core)
    with torch.device("meta"):
        model = LanguageModel(config, column.inputs, column.outputs)
    return sum(parameter.numel() for parameter in model.parameters())


@functools.cache
def paper_models_table() -> str:
    """The paper's columns, the command that trains them, and their parameters beside ours."""
    rows = []
    for column in PAPER_COLUMNS:
        own, shared = count_parameters(column), count_parameters(column, shared_kv=True)
        large = column.model == "wikitext-103"
        published = f"{column.millions:g}M" + (f"; {SHARED_MILLIONS}M shared" if large else "")
        rows.append([column.title, f"`{column.command}`", published, f"{own / 1e6:.1f}M", f"{shared / 1e6:.1f}M"])
    return markdown_table(["paper's column", "`train`", "paper", "ours", "ours with `shared_kv=true`"], rows)


PAPER_SPEED = {"feedback": (84_400, 2_176), "transformer": (296_000, 592)}  # words/s, training and inference, on GPUs


def speed_table(record: Record) -> Table:
    """Training and generation beside the paper's, each with its ratio to the Transformer's."""
    generation = {batch: _by_name(record, batch) for batch in dict.fromkeys(r["batch"] for r in record["generation"])}
    columns = [{row["contender"]: row["tokens_per_second"] for row in record["training"]}, *generation.values()]
    columns += [{name: numbers[place] for name, numbers in PAPER_SPEED.items()} for place in (0, 1)]
    heads = ["training", *(f"generation B{batch}" for batch in generation), "paper, training", "paper, inference"]
    rows = [[name, *(_cell(column, name) for column in columns)] for name in columns[0]]
    return Table("WikiText-103 small, the whole language model, words/s", ["", *heads], rows)


def _by_name(record: Record, batch: int) -> dict[str, float]:
    return {row["contender"]: row["tokens_per_second"] for row in record["generation"] if row["batch"] == batch}


def _cell(column: dict[str, float], name: str) -> str:
    return f"{column[name]:,.0f} ({column[name] / column['transformer']:.2f}x)" if name in column else ""


def about_language_speed(record: Record) -> str:
    """How it was measured, and on what."""
    about, settings = record["machine"], record["settings"]
    seconds = "CPU time of 1 thread" if about["threads"] == 1 else f"{about['threads']} threads"
    return (
        f"Measured in one run, contenders taking turns, best of {settings['repeats']}: {about['processor']}, "
        f"{seconds}, torch {about['torch']}, float32, commit {str(about['commit'])[:9]}. A training step is a whole "
        f"update: B = {settings['batch']} rows of T = {settings['steps']} words with a full memory of "
        f"{settings['memory_size']}, dropout {settings['dropout']:g}, embeddings, adaptive softmax over "
        f"{settings['vocabulary']:,} words, clipping and Adam. In brackets the ratio to the Transformer in the same "
        "column. The paper's are on GPUs, with batch 512 and T = 256 in training."
    )


def language_speed(path: Path) -> str:
    """The table with what it was measured on; says so where nothing was measured yet."""
    if not path.exists():
        return "Not measured yet: `feedback-transformer bench --language`."
    record = read_record(path)
    return f"{about_language_speed(record)}\n\n{speed_table(record).markdown()}"
