"""Speed, for the report: the paper's Table 5, from the benchmark records that exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments.speed import (
    ENGINES,
    FRAMES,
    RECORDS,
    SPEEDS,
    claim_verdicts,
    command,
    speed_claim,
)
from feedback_transformer.report.experiments import overall
from feedback_transformer.report.speed import Table, about_speed, notes, summary_tables
from feedback_transformer.report.svg import Chart
from feedback_transformer.report.whole_models import (
    LANGUAGE,
    TRANSLATION,
    about_whole_model,
    depth_chart,
    whole_model_tables,
)
from feedback_transformer.report.worlds import about_worlds, world_tables
from feedback_transformer.training.record import read_record

WHOLE_MODELS = (("language modelling", LANGUAGE), ("translation", TRANSLATION))


class SpeedSection(NamedTuple):
    """What was measured, how, with which command, and the numbers."""

    name: str
    title: str
    where: str  # in the paper; empty where it is not
    about: str
    tables: list[Table]
    charts: Sequence[Chart] = ()
    claims: Sequence[list[str]] = ()  # words, the paper's ratio, ours, verdict: a row for every batch
    verdicts: Sequence[tuple[str, str]] = ()  # a claim's words and its verdict, once for all batches

    def overall(self) -> str:
        return overall([verdict for _, verdict in self.verdicts]) if self.verdicts else "no claim"

    @property
    def place_in_words(self) -> str:
        return f"In the paper: {self.where}." if self.where else "Not in the paper."


def speed_sections(results: Path) -> list[SpeedSection]:
    """One section for every benchmark that has a record."""
    try:
        return _speed_sections(results)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"a benchmark record in {results} is damaged ({error!r}); measure it again") from None


def claims_of(option: str, results: Path) -> list[list[str]]:
    """The claims that a benchmark answers, each with what it was measured on."""
    found = [(speed, speed_claim(speed, results)) for speed in SPEEDS if speed.option == option]
    return [[f"{words}, {speed.shape}", *rest] for speed, (words, *rest) in found]


def verdicts_of(option: str, results: Path) -> list[tuple[str, str]]:
    return [(speed.words(), verdict) for speed, verdict in claim_verdicts(results, option)]


def _speed_sections(results: Path) -> list[SpeedSection]:
    sections = []
    for name, paper in WHOLE_MODELS:
        if (path := results / RECORDS[paper.option]).exists():
            record = read_record(path)
            about = f"{about_whole_model(record, paper)} Made with `{command(paper.option)}`."
            tables, charts = whole_model_tables(record, paper), [depth_chart(record)] if "depth" in record else []
            where = "Table 5 and Figure 4 (left)" if charts else "Table 5"
            claims, verdicts = claims_of(paper.option, results), verdicts_of(paper.option, results)
            named = f"speed-{name.split()[0]}", f"Speed of {name}"
            sections.append(SpeedSection(*named, where, about, tables, charts, claims, verdicts))
    if (path := results / RECORDS["--worlds"]).exists():
        record = read_record(path)
        about = (
            f"The paper has {FRAMES[0]:,} frames/s for both attention cores, on 20 cores and a GPU. "
            f"{about_worlds(record)} Made with `{command('--worlds')}`."
        )
        title = "Speed of reinforcement learning"
        claims, verdicts = claims_of("--worlds", results), verdicts_of("--worlds", results)
        tables = world_tables(record)
        sections.append(SpeedSection("speed-worlds", title, "Table 5", about, tables, (), claims, verdicts))
    if (path := results / RECORDS[ENGINES]).exists():
        record = read_record(path)
        rows = "; ".join(f"`{name}`: {note}" for name, note in notes(record).items())
        about = f"{about_speed(record)} The rows: {rows}. Made with `{command(ENGINES)}`."
        tables = summary_tables(record)
        claims, verdicts = claims_of(ENGINES, results), verdicts_of(ENGINES, results)
        title = "Speed and memory of the engines"
        sections.append(SpeedSection("speed-engines", title, "Section 1", about, tables, (), claims, verdicts))
    return sections
