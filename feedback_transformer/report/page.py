"""The report: one page from the records alone, each experiment with claims, verdicts, tables, figure and cost."""

from __future__ import annotations

import datetime
from html import escape
from pathlib import Path

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.svg import STYLE

PAPER = 'Fan, Lavril, Grave, Joulin, Sukhbaatar, <a href="https://arxiv.org/abs/2002.09402">arXiv 2002.09402</a>'
PAGE_STYLE = """
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1180px; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
a { color: var(--c0); } code { font-size: 0.88em; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); } .charts { display: flex; flex-wrap: wrap; gap: 1rem; }
svg.chart { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { border-bottom: 1px solid var(--faint); padding: 0.3rem 0.7rem; text-align: right; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
.verdict { border-radius: 1em; display: inline-block; padding: 0.1em 0.7em; border: 1px solid; font-size: 0.85rem; }
.holds { color: var(--c2); } .fails { color: var(--c1); } .open { color: var(--quiet); }
@media (max-width: 600px) { body { font-size: 15px; } th, td { padding: 0.25rem 0.35rem; font-size: 0.78rem; } }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""


def page(results: Path, scale: str = "laptop") -> str:
    """The whole page, which needs nothing but itself."""
    outcomes = [Outcome(experiment, scale, results) for experiment in EXPERIMENTS.values()]
    shared = {key: records for outcome in outcomes for key, records in outcome.records.items()}
    seconds = [record["cpu_seconds"] for records in shared.values() for record in records]
    today = datetime.date.today().isoformat()
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            "<title>The Feedback Transformer, reproduced</title>",
            f"<style>{STYLE}{PAGE_STYLE}</style></head><body>",
            "<h1>The Feedback Transformer, reproduced</h1>",
            f"<p>{PAPER}. Every number on this page comes from a record of a run; a claim holds when the difference "
            "between the means over seeds is more than twice its standard error.</p>",
            f'<p class="quiet">Built {today} from {len(seconds)} records, {sum(seconds) / 3600:.1f} core-hours.</p>',
            summary(outcomes),
            *map(section, outcomes),
            "</body></html>\n",
        ]
    )


def write_page(results: Path, path: Path) -> None:
    """The page as a file."""
    if not results.is_dir():
        raise ConfigError(f"--results = {results} is not a folder; `feedback-transformer reproduce` makes records")
    try:
        path.write_text(page(results))
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror}); choose another --out") from None


def summary(outcomes: list[Outcome]) -> str:
    """A row an experiment."""
    rows = []
    for outcome in outcomes:
        experiment = outcome.experiment
        name = f'<a href="#{experiment.name}">{escape(experiment.title)}</a>'
        rows.append([name, escape(experiment.where), badge(overall(outcome))])
    return table(["experiment", "in the paper", "verdict"], rows, "words")


def overall(outcome: Outcome) -> str:
    """One verdict for all claims."""
    said = [answer for _, answer in outcome.claims()]
    held = sum(answer.startswith("holds") for answer in said)
    reduced = " reduced" if outcome.scale != "paper" else ""
    if all(answer.startswith("not run") for answer in said):
        return "not run"
    if held == len(said):
        return f"holds{reduced}"
    return f"{held} of {len(said)} claims hold{reduced}" if held else "does not hold"


def section(outcome: Outcome) -> str:
    """All there is to say of one experiment."""
    experiment = outcome.experiment
    header, rows = outcome.rows()
    claims = [[escape(words), badge(said)] for words, said in outcome.claims()]
    reduced = f"Reduced: {escape(experiment.reduced)}. " if outcome.scale != "paper" else ""
    cost = f"{hours:.1f} core-hours in all. " if (hours := outcome.cost_hours()) else ""
    scale = "" if outcome.scale == "laptop" else f" --scale {outcome.scale}"
    parts = [
        f'<section id="{experiment.name}"><h2>{escape(experiment.title)}</h2>',
        f'<p class="quiet">{escape(experiment.where)}. {reduced}{cost}'
        f"<code>feedback-transformer reproduce {experiment.name}{scale}</code></p>",
        table(["the paper's claim", "here"], claims, "words"),
        f'<div class="charts">{"".join(chart.svg() for chart in outcome.charts())}</div>',
        table(header, [[escape(cell) for cell in row] for row in rows]),
        "</section>",
    ]
    return "\n".join(parts)


def badge(said: str) -> str:
    """A verdict in its colour; what follows it in plain words."""
    verdict, bracket, rest = said.partition(" (")
    kind = "holds" if verdict.startswith("holds") else "fails" if verdict.startswith("does not") else "open"
    return f'<span class="verdict {kind}">{escape(verdict)}</span>{escape(bracket + rest)}'


def table(header: list[str], rows: list[list[str]], kind: str = "") -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
