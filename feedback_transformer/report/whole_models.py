"""The speed of whole models beside the paper's: its language model and its translation, training and inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from feedback_transformer.config import CORES
from feedback_transformer.experiments.speed import PAPER, SHALLOW
from feedback_transformer.report.speed import CPU_TIME, Table, measured
from feedback_transformer.report.svg import Chart, Series, line_chart
from feedback_transformer.training.record import read_record

Record = dict[str, Any]
DEPTHS = {"decoder": "depth", "encoder": "encoder"}  # where a record has speeds over the depth of that part


class PaperSpeed(NamedTuple):
    """A task of the paper's speed table: words per second in training and at inference, on GPUs."""

    title: str
    option: str  # of `bench`
    about: str  # how it is measured, to be filled with the record's settings
    numbers: dict[str, tuple[int, int]]


LANGUAGE = PaperSpeed(
    "WikiText-103 small, the whole language model, words/s",
    "--language",
    "A training step is a whole update: B rows of T = {steps} words with a full memory of {memory_size}, dropout "
    "{dropout:g}, embeddings, adaptive softmax over {vocabulary:,} words, clipping and Adam. The paper's numbers are "
    "from GPUs, with batch 512 and T = 256 in training.",
    PAPER["language"],
)
TRANSLATION = PaperSpeed(
    "Translation, {encoder_layers} encoder and {decoder_layers} decoder layers, target tokens/s",
    "--translation",
    "A training step is a whole update: B pairs of {length} tokens per side, width {model_dim}, vocabulary "
    "{vocabulary:,}, dropout {dropout:g}, label smoothing, Adam. Generation is beam search ({beam} beams) for B "
    "sources of {length} tokens, including the encoder. The paper's numbers are from its WMT model on GPUs.",
    PAPER["translation"],
)


def whole_model_tables(record: Record, paper: PaperSpeed) -> list[Table]:
    """Beside the paper's speed table, and over the depths of decoder and encoder where these were measured."""
    paper.about.format(**record["settings"])  # an error for the record of another model
    depths = [depth_table(record, part) for part, where in DEPTHS.items() if where in record]
    return [speed_table(record, paper), *depths]


def speed_table(record: Record, paper: PaperSpeed) -> Table:
    """Training and generation beside the paper's, each with its ratio to the Transformer's."""
    columns: dict[str, dict[str, float]] = {}
    for part in ("training", "generation"):
        for row in record[part]:
            columns.setdefault(f"{part} B{row['batch']}", {})[row["contender"]] = row["tokens_per_second"]
    for place, part in enumerate(("training", "inference")):
        columns[f"paper, {part}"] = {name: numbers[place] for name, numbers in paper.numbers.items()}
    names = dict.fromkeys(row["contender"] for row in record["training"])
    rows = [[name, *(_cell(column, name) for column in columns.values())] for name in names]
    return Table(paper.title.format(**record["settings"]), ["", *columns], rows)


def depth_table(record: Record, part: str) -> Table:
    """Beam search over the depth of encoder or decoder, and how many times as fast the shallowest is as the deepest."""
    lines = depth_lines(record, part)
    depths = sorted({depth for rates in lines.values() for depth in rates})
    rows = []
    for (name, batch), rates in lines.items():
        cells = [f"{rates[depth]:,.0f}" for depth in depths]
        rows.append([f"{name}, B{batch}", *cells, f"{rates[depths[0]] / rates[depths[-1]]:.2f}x"])
    if part == "decoder":
        rows.append(["feedback, paper", *["-"] * len(depths), f"{SHALLOW:g}x"])
    heads = [f"{depth} {part} layer{'s' * (depth > 1)}" for depth in depths]
    title = f"Decoding over the depth of the {part}, target tokens/s"
    return Table(title, ["", *heads, f"{depths[0]} over {depths[-1]}"], rows)


def depth_chart(record: Record) -> Chart:
    """The same as lines, as the paper draws it beside BLEU."""
    lines = [
        Series(f"{CORES[name]}, B{batch}", place, sorted(rates.items()))
        for place, ((name, batch), rates) in enumerate(depth_lines(record, "decoder").items())
    ]
    return line_chart(lines, "decoder layers", "target tokens/s", by_place=True)


def depth_lines(record: Record, part: str) -> dict[tuple[str, int], dict[int, float]]:
    """By contender and batch: tokens per second by depth of that part."""
    lines: dict[tuple[str, int], dict[int, float]] = {}
    for row in record[DEPTHS[part]]:
        lines.setdefault((row["contender"], row["batch"]), {})[row[f"{part}_layers"]] = row["tokens_per_second"]
    return lines


def _cell(column: dict[str, float], name: str) -> str:
    return f"{column[name]:,.0f} ({column[name] / column['transformer']:.2f}x)" if name in column else ""


def about_whole_model(record: Record, paper: PaperSpeed) -> str:
    """How it was measured, and on what."""
    return (
        f"{measured(record, CPU_TIME)}. {paper.about.format(**record['settings'])} "
        "In brackets the ratio to the Transformer in the same column."
    )


def whole_model_speed(path: Path, paper: PaperSpeed) -> str:
    """The table and what it was measured on, or a note that nothing was measured yet."""
    if not path.exists():
        return f"Not measured yet: `feedback-transformer bench {paper.option}`."
    record = read_record(path)
    return "\n\n".join([about_whole_model(record, paper), *(t.markdown() for t in whole_model_tables(record, paper))])
