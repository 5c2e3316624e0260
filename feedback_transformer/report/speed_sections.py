"""Speed, for the report: the paper's Table 5, from the benchmark records that exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments.speed import (
    ENGINES,
    FRAMES,
    SPEEDS,
    bench_records,
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


def _speed_sections(results: Path) -> list[SpeedSection]:
    sections, records = [], bench_records(results)

    def add(
        option: str, name: str, title: str, where: str, about: str, tables: list[Table], charts: Sequence[Chart] = ()
    ) -> None:
        found = [(speed, speed_claim(speed, records[option])) for speed in SPEEDS if speed.option == option]
        claims = [[f"{words}, {speed.shape}", *rest] for speed, (words, *rest) in found]
        verdicts = [(speed.words(), verdict) for speed, verdict in claim_verdicts(results, option)]
        about = f"{about} Made with `{command(option)}`."
        sections.append(SpeedSection(f"speed-{name}", title, where, about, tables, charts, claims, verdicts))

    for name, paper in WHOLE_MODELS:
        if record := records.get(paper.option):
            charts = [depth_chart(record)] if "depth" in record else []
            where = "Table 5 and Figure 4 (left)" if charts else "Table 5"
            about, tables = about_whole_model(record, paper), whole_model_tables(record, paper)
            add(paper.option, name.split()[0], f"Speed of {name}", where, about, tables, charts)
    if record := records.get("--worlds"):
        about = f"The paper has {FRAMES[0]:,} frames/s for both attention cores, on 20 cores and a GPU. "
        about += about_worlds(record)
        add("--worlds", "worlds", "Speed of reinforcement learning", "Table 5", about, world_tables(record))
    if record := records.get(ENGINES):
        rows = "; ".join(f"`{name}`: {note}" for name, note in notes(record).items())
        about = f"{about_speed(record)} The rows: {rows}."
        add(ENGINES, "engines", "Speed and memory of the engines", "Section 1", about, summary_tables(record))
    return sections
