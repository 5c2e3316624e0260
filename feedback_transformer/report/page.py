"""The report: one page from the records alone, each experiment with claims, verdicts, tables, figure and cost.

`markdown` says the same in Markdown, without the figures.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.report.experiments import Outcome, kind_of
from feedback_transformer.report.speed_sections import SpeedSection, speed_sections
from feedback_transformer.report.svg import STYLE, Chart
from feedback_transformer.report.tables import markdown_table

TITLE = "The Feedback Transformer, reproduced"
PAPER, ADDRESS = "Fan, Lavril, Grave, Joulin, Sukhbaatar", "https://arxiv.org/abs/2002.09402"
MEANING = (
    "Every number on this page comes from a record of a run. A claim holds when the difference between the means "
    "over seeds is outside its 95% confidence interval (Student's t, the two variances pooled); a single seed is "
    "taken to spread as those it is compared with or, where both are single, as the widest of the experiment, and must "
    "be ahead by two percent at least (half a point of BLEU, a point of ROUGE), by a tenth where no spread is known. "
    "What the paper calls a match may differ by two percent (0.01 bits on char-PTB), noise included. It is not decided "
    "when the difference is smaller, or when neither has learned anything; it holds reduced when the runs are smaller "
    "than the paper's. ± is the standard deviation between seeds."
)
PAGE_STYLE = """
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1180px; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.25rem; line-height: 1.3; margin-top: 3rem; }
a { color: var(--c0); } code { font-size: 0.88em; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); } .charts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0;
  align-items: flex-start; }
svg.chart { max-width: 100%; height: auto; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: 0.9rem; }
caption { font-weight: 600; text-align: left; padding-bottom: 0.3rem; }
th, td { border-bottom: 1px solid var(--faint); padding: 0.3rem 0.7rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
.verdict { border-radius: 1em; display: inline-block; padding: 0.1em 0.7em; border: 1px solid; font-size: 0.85rem; }
.holds { color: var(--c2); } .fails { color: var(--c1); } .open { color: var(--quiet); }
summary { cursor: pointer; }
@media screen and (max-width: 600px) {
  body { font-size: 15px; }
  .wide, table, caption, tbody, tr, td { display: block; width: 100%; }
  thead { display: none; }
  tr { border-bottom: 1px solid var(--faint); padding: 0.5rem 0; }
  td, .words td { border: 0; display: flex; gap: 1rem; justify-content: space-between; padding: 0.1rem 0;
    text-align: right; }
  td::before { color: var(--quiet); content: attr(data-head); flex: none; max-width: 50%; text-align: left; }
  td:first-child, .words td:first-child { display: block; font-weight: 600; text-align: left; }
  td:first-child::before { content: none; }
  td > span { overflow-wrap: anywhere; }
}
@media print {
  body { font-size: 10pt; max-width: none; padding: 0; } a { color: inherit; text-decoration: none; }
  h2 { break-after: avoid; } tr, svg.chart, .charts { break-inside: avoid; } svg.chart { width: 48%; }
  table, .verdict { font-size: 8.5pt; } .verdict { white-space: nowrap; } details { display: none; }
}
"""


def page(results: Path, scale: str = "laptop") -> str:
    """The whole page, which needs nothing but itself."""
    outcomes, speeds = outcomes_of(results, scale), speed_sections(results)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{TITLE}</title>",
            f"<style>{STYLE}{PAGE_STYLE}</style></head><body>",
            f"<h1>{TITLE}</h1>",
            f'<p>{PAPER}, <a href="{ADDRESS}">arXiv 2002.09402</a>. {MEANING}</p>',
            f'<p class="quiet">{built(outcomes)}</p>',
            summary(outcomes, speeds),
            *map(section, outcomes),
            *map(speed_section, speeds),
            "</body></html>\n",
        ]
    )


def markdown(results: Path, scale: str = "laptop") -> str:
    """The tables of the page."""
    outcomes = outcomes_of(results, scale)
    rows = [[o.experiment.title, o.experiment.place, o.overall()] for o in outcomes]
    parts = [
        f"# {TITLE}",
        f"{PAPER}, [arXiv 2002.09402]({ADDRESS}). {MEANING}",
        built(outcomes),
        markdown_table(["experiment", "in the paper", "verdict"], rows),
    ]
    for outcome in outcomes:
        parts += [f"## {outcome.experiment.title}", outcome.experiment.place_in_words, outcome.markdown()]
    for speed in speed_sections(results):
        about = f"{speed.place_in_words} {speed.about}"
        parts += [f"## {speed.title}", about, *(table.markdown() for table in speed.tables)]
    return "\n\n".join(parts) + "\n"


def write_report(results: Path, path: Path, scale: str = "laptop") -> Path:
    """The page as a file, and its tables in Markdown beside it, which is returned."""
    if not results.is_dir():
        raise ConfigError(f"--results = {results} is not a folder; `feedback-transformer reproduce` makes records")
    tables = path.with_suffix(".md")
    if tables == path:
        raise ConfigError(f"--out = {path} is where the tables would go; name the page, as report.html")
    try:
        path.write_text(page(results, scale))
        tables.write_text(markdown(results, scale))
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename} ({error.strerror}); choose another --out") from None
    return tables


def outcomes_of(results: Path, scale: str) -> list[Outcome]:
    return [Outcome(e, scale, results) for e in EXPERIMENTS.values() if e.variants(scale)]


def built(outcomes: list[Outcome]) -> str:
    """When, and from what; experiments share records, which are counted once."""
    shared = {key: records for outcome in outcomes for key, records in outcome.records.items()}
    seconds = [record["cpu_seconds"] for records in shared.values() for record in records]
    today = datetime.date.today().isoformat()
    return f"Built {today} from {len(seconds)} records, {sum(seconds) / 3600:.1f} core-hours."


def summary(outcomes: list[Outcome], speeds: list[SpeedSection]) -> str:
    """A row an experiment, and a row a benchmark."""
    told = [(outcome.experiment, badge(outcome.overall())) for outcome in outcomes]
    rows = [[link(e.name, e.title), escape(e.place), said] for e, said in told]
    rows += [[link(speed.name, speed.title), escape(speed.where or "not in the paper"), "measured"] for speed in speeds]
    return table(["experiment", "in the paper", "verdict"], rows, "words")


def section(outcome: Outcome) -> str:
    """All there is to say of one experiment."""
    experiment = outcome.experiment
    heads, claims = outcome.claim_rows()
    parts = [
        f'<section id="{experiment.name}"><h2>{escape(experiment.title)}</h2>',
        f'<p class="quiet">{escape(experiment.place_in_words)} {with_code(outcome.note())}</p>',
        table(heads, [[*map(escape, row[:-1]), badge(row[-1])] for row in claims], "words"),
    ]
    if any(outcome.records.values()):
        header, rows = outcome.rows()
        parts += [
            *charts_row(outcome.charts()),
            table(header, [list(map(escape, row)) for row in rows]),
            runs(outcome),
        ]
    return "\n".join([*parts, "</section>"])


def runs(outcome: Outcome) -> str:
    """Each run with the command that makes it again, to be unfolded."""
    rows = []
    for variant in outcome.variants:
        for record in outcome.records[variant.key]:
            score, minutes = f"{outcome.value(record, outcome.metric):.4g}", f"{record['cpu_seconds'] / 60:.1f}"
            cells = [f"{variant.label}, seed {record['run']['seed']}", score, minutes]
            rows.append([*map(escape, cells), f"<code>{escape(record.get('command') or '')}</code>"])
    made = table(["run", f"{outcome.split} {outcome.metric}", "minutes", "made again by"], rows, "words")
    return f"<details><summary>Each run and its command</summary>{made}</details>"


def speed_section(speed: SpeedSection) -> str:
    tables = [table(t.heads, [list(map(escape, row)) for row in t.rows], caption=t.title) for t in speed.tables]
    about = f'<p class="quiet">{escape(speed.place_in_words)} {with_code(speed.about)}</p>'
    head = f'<section id="{speed.name}"><h2>{escape(speed.title)}</h2>'
    return "\n".join([head, about, *charts_row(speed.charts), *tables, "</section>"])


def charts_row(charts: Sequence[Chart]) -> list[str]:
    """Side by side, where there are any."""
    return [f'<div class="charts">{"".join(chart.svg() for chart in charts)}</div>'] if charts else []


def link(name: str, title: str) -> str:
    return f'<a href="#{name}">{escape(title)}</a>'


def badge(said: str) -> str:
    """A verdict in its colour; what follows it in plain words."""
    verdict, bracket, rest = said.partition(" (")
    one = "," not in verdict  # else of several claims
    kind = {"holds": "holds", "does not hold": "fails"}.get(kind_of(verdict), "open") if one else "open"
    return f'<span class="verdict {kind}">{escape(verdict)}</span>{escape(bracket + rest)}'


def with_code(text: str) -> str:
    """Words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def table(header: list[str], rows: list[list[str]], kind: str = "", caption: str = "") -> str:
    """Cells are HTML already; each knows its column's head, for where a row becomes a list."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = [zip(header, row, strict=True) for row in rows]
    cells = ["".join(f'<td data-head="{escape(name)}"><span>{cell}</span></td>' for name, cell in row) for row in lines]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inside}</table></div>'
