"""A whole encoder-decoder at the paper's shape: six encoder layers and two decoder layers, as in its speed table; and
decoding with fewer and more decoder layers, as in its figure on the depth of the decoder, and with a deeper encoder.

The widths are those of the paper's IWSLT model (the WMT one is twice as wide, its feed-forward four times), the
vocabulary is ours. The larger training batch has the 4,096 tokens of that preset. The paper's numbers are from GPUs.
All sentences have one length, so that padding plays no role, and every search runs to the full length.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from feedback_transformer.benchmarks.speed import Run, take_turns, thread_clock
from feedback_transformer.benchmarks.whole_models import Turn, measure_models, rates, updating, zipf
from feedback_transformer.config import ModelConfig
from feedback_transformer.decoding import Search, beam_search
from feedback_transformer.model.encoder_decoder import END, EncoderDecoder
from feedback_transformer.presets import PAPER_MODELS, PAPER_TRAIN


@dataclass(frozen=True)
class Setting:
    """What is measured: a model, and how much of it at a time."""

    model: ModelConfig
    vocabulary: int
    length: int  # tokens of a source and of a target
    training_batches: tuple[int, ...]
    generation_batches: tuple[int, ...]
    depths: tuple[int, ...]  # of the decoder
    encoders: tuple[int, ...]  # depths of the encoder
    beam: int = 5

    def contenders(self) -> dict[str, ModelConfig]:
        """The paper's speed table has the Feedback Transformer with shared keys and values."""
        return {
            "feedback": replace(self.model, shared_kv=True),
            "feedback, keys and values per layer": self.model,
            "transformer": replace(self.model, core="transformer"),
        }


SIX_TWO = Setting(
    replace(PAPER_MODELS["iwslt14-deen"], num_layers=2), vocabulary=10_000, length=32,
    training_batches=(32, 128), generation_batches=(1, 32), depths=(1, 2, 4, 6), encoders=(6, 12),
)  # fmt: skip
TINY = Setting(
    replace(SIX_TWO.model, encoder_layers=2, model_dim=16, num_heads=2, head_dim=8, ff_dim=32, memory_size=8),
    vocabulary=50, length=5, training_batches=(2,), generation_batches=(1,), depths=(1, 2), encoders=(2, 3), beam=2,
)  # fmt: skip


def measure(quick: bool, repeats: int, console: Console) -> dict[str, Any]:
    """Training and beam search, contenders taking turns, as a record."""
    setting = TINY if quick else SIX_TWO
    configs = setting.contenders()

    def learning(batch: int) -> Turn:
        runs = {name: training(config, setting, batch) for name, config in configs.items()}
        return Turn(runs, batch * setting.length)

    def searching(batch: int) -> Turn:
        runs = {name: search(config, setting, batch) for name, config in configs.items()}
        return Turn(runs, batch * setting.length)

    record = measure_models(
        {
            "length": setting.length,
            "vocabulary": setting.vocabulary,
            "encoder_layers": setting.model.encoder_layers,
            "decoder_layers": setting.model.num_layers,
            "model_dim": setting.model.model_dim,
            "beam": setting.beam,
            "dropout": setting.model.dropout,
        },
        {batch: functools.partial(learning, batch) for batch in setting.training_batches},
        {batch: functools.partial(searching, batch) for batch in setting.generation_batches},
        quick,
        repeats,
        console,
    )
    record["depth"] = over_depth("decoder", setting.depths, setting, repeats, console)
    record["encoder"] = over_depth("encoder", setting.encoders, setting, repeats, console)
    return record


def over_depth(
    part: str, depths: tuple[int, ...], setting: Setting, repeats: int, console: Console
) -> list[dict[str, Any]]:
    """Beam search with every depth of the encoder or of the decoder and the same other part; all take turns."""
    rows, field = [], {"encoder": "encoder_layers", "decoder": "num_layers"}[part]
    contenders = {name: config for name, config in setting.contenders().items() if name in ("feedback", "transformer")}
    for batch in setting.generation_batches:
        console.print(f"generation B{batch}, {len(depths)} depths of the {part}", style="dim")
        runs = {
            (name, depth): search(replace(config, **{field: depth}), setting, batch)  # type: ignore[arg-type]
            for name, config in contenders.items()
            for depth in depths
        }
        for (name, depth), seconds in take_turns(runs, repeats, patience=math.inf, clock=thread_clock()).items():
            row = rates(name, seconds, batch * setting.length)
            rows.append({"batch": batch, f"{part}_layers": depth, **row})
    return rows


def training(config: ModelConfig, setting: Setting, batch: int) -> Run:
    """One update on pairs of one length, with label smoothing."""
    train, model = PAPER_TRAIN["iwslt14-deen"], EncoderDecoder(config, setting.vocabulary)
    source, target = sentences(batch, setting), sentences(batch, setting, extra=1)

    def loss() -> Tensor:
        logits = model(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=train.label_smoothing)

    return updating(model, train, loss)


def search(config: ModelConfig, setting: Setting, batch: int) -> Run:
    """Beam search for targets as long as the sources, including the encoder."""
    model, source = EncoderDecoder(config, setting.vocabulary).eval(), sentences(batch, setting)
    limits = torch.full((batch,), setting.length)
    wanted = Search(beam=setting.beam, min_length=setting.length)

    @torch.no_grad()
    def run() -> None:
        beam_search(model.read(source), limits, wanted)

    return run


def sentences(batch: int, setting: Setting, extra: int = 0) -> Tensor:
    """Tokens [B, length + extra] without padding, begin or end symbols"""
    return END + 1 + zipf(batch, setting.length + extra, setting.vocabulary - END - 1)
