"""Language modelling beside the paper: the parameters of its models."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import torch

from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.presets import PAPER_MODELS
from feedback_transformer.report.tables import markdown_table


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


def count_parameters(column: Column, shared_kv: bool = False) -> int:
    """Parameters of the model as built, without allocating its weights."""
    config = replace(PAPER_MODELS[column.model], shared_kv=shared_kv)
    with torch.device("meta"):
        model = LanguageModel(config, column.inputs, column.outputs)
    return sum(parameter.numel() for parameter in model.parameters())


@functools.cache
def paper_models_table() -> str:
    """The paper's columns, the commands that train them, and their parameter counts beside ours."""
    rows = []
    for column in PAPER_COLUMNS:
        own, shared = count_parameters(column), count_parameters(column, shared_kv=True)
        large = column.model == "wikitext-103"
        published = f"{column.millions:g}M" + (f"; {SHARED_MILLIONS}M shared" if large else "")
        rows.append([column.title, f"`{column.command}`", published, f"{own / 1e6:.1f}M", f"{shared / 1e6:.1f}M"])
    return markdown_table(["paper's column", "`train`", "paper", "ours", "ours with `shared_kv=true`"], rows)
