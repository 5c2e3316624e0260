"""The report: one page, made from the records alone. First a board of all verdicts; then, chapter by chapter, each
experiment with its claims, tables, figure, cost and commands.

`markdown` gives the same in Markdown, without the figures.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments import CHAPTERS, SUITES
from feedback_transformer.experiments.experiment import train_command
from feedback_transformer.report.costs import HEADS, cost_rows
from feedback_transformer.report.experiment_figures import charts
from feedback_transformer.report.experiments import Outcome, kind_of
from feedback_transformer.report.speed_sections import SpeedSection, speed_sections
from feedback_transformer.report.suites import suite_rows
from feedback_transformer.report.svg import STYLE, Chart
from feedback_transformer.report.tables import markdown_table
from feedback_transformer.report.tally import Tally, tallies
from feedback_transformer.training.checkpoint import make_folder

TITLE = "The Feedback Transformer, reproduced"
PAPER, ADDRESS = "Fan, Lavril, Grave, Joulin, Sukhbaatar", "https://arxiv.org/abs/2002.09402"
RULES = """\
- A claim of the paper *holds* when the difference between the means over seeds is in its favour and outside its 95%
  confidence interval (Student's t, the two variances pooled: 2.8 standard errors for three seeds against three).
- It is *not decided* when the difference is smaller than that, or when neither model scores above what a model can
  that has learned nothing.
- A single seed is assumed to spread like the seeds it is compared with; with fewer than four seeds of the two models
  together, the widest spread in the experiment is assumed. Where a model has a single seed, the verdict says *one
  seed*, and the difference has to be at least two percent (half a point of BLEU, a point of ROUGE, 0.05 in state
  tracking); if nothing in the experiment has a second seed, a tenth of the score and twice as many points.
- A ratio of speeds that is within a fifth of what is asked is *not decided*: it varies by that much from one
  measurement, or one machine, to the next (a ratio of Feedback to itself by a twentieth). Asked is 1x of what is faster
  or no slower, 0.9x of what is hardly slower, and the paper's number where it claims one. Speeds too can only hold
  reduced: on one CPU core with few rows, instead of GPUs.
- What the paper compares with published numbers of others is *not run* here: only its own scale could tell.
- What is called a match may differ by two percent (0.01 bits on char-PTB, 0.05 in state tracking), noise included;
  "loses only 1 BLEU" may be 1.2, as in the paper.
- ± is the standard deviation between seeds."""
COLOURS = {"holds": "holds", "does not hold": "fails", "not decided": "open", "not run": "unrun"}  # of verdicts
SPEED_CHAPTER = "Speed"
COST_CHAPTER = "The paper's own scale"
COSTS = (
    "What the published hyperparameters would take on one core: every model was built, and two updates were timed with "
    "as many rows as a core can manage, the rest being in proportion."
)
VERDICTS = "How verdicts are reached"
SPEED_HEADS = ["claim", "paper", "here", "verdict"]
SOURCE = "All results of ours come from records of runs, and those of others from the paper or the source named."
SUITE_CAPTIONS = {
    SUITES["toy-tasks"]: "All tasks; in brackets the paper's numbers, where it gives any",
    SUITES["state-tracking"]: "All tasks. scaled: 0 is chance, 1 is perfect; last: the last answer of each episode; "
    "sparse and dense: few and many bits to remember",
}
PAGE_STYLE = """
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1180px; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.45rem; line-height: 1.3; margin-top: 4rem;
  border-bottom: 2px solid var(--faint); } h3 { font-size: 1.15rem; line-height: 1.3; margin-top: 2.5rem; }
a { color: var(--c0); } code { font-size: 0.88em; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); } .charts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0;
  align-items: flex-start; }
svg.chart { max-width: 100%; height: auto; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: 0.9rem; }
caption { font-weight: 600; text-align: left; padding-bottom: 0.3rem; }
th, td { border-bottom: 1px solid var(--faint); padding: 0.3rem 0.7rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
.verdict { border-radius: 1em; display: inline-block; padding: 0.1em 0.7em; border: 1px solid; font-size: 0.85rem; }
.holds { color: var(--c2); } .fails { color: var(--c1); } .open, .unrun { color: var(--quiet); }
.bar { display: flex; gap: 2px; height: 1.5rem; margin: 0.2rem 0 1rem; }
.bar i { background: currentColor; border-radius: 3px; min-width: 3px; }
.marks { display: inline-flex; flex-wrap: wrap; gap: 4px; vertical-align: middle; }
.marks i { border: 2px solid currentColor; border-radius: 50%; display: inline-block; height: 13px; width: 13px; }
.marks .holds, .marks .fails { background: currentColor; } .marks .fails { border-radius: 2px; }
.marks .unrun { border-style: dotted; } .bar .open { opacity: 0.55; } .bar .unrun { opacity: 0.25; }
.board { columns: 2; column-gap: 2rem; } .board .wide { break-inside: avoid; margin: 0 0 1.5rem; }
.board table { width: 100%; } .board td:last-child, .board th:last-child { width: 40%; }
details { margin: 0.7rem 0; } summary { cursor: pointer; }
@media screen and (max-width: 900px) { .board { columns: 1; } }
@media screen and (max-width: 600px) {
  body { font-size: 15px; }
  .board td:last-child { width: auto; }
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
  h2, h3 { break-after: avoid; } i { print-color-adjust: exact; }
  tr, svg.chart, .charts { break-inside: avoid; } svg.chart { width: 48%; }
  table, .verdict { font-size: 8.5pt; } .verdict { white-space: nowrap; }
  details::details-content { content-visibility: visible; }
}
"""


Chapters = Mapping[str, list[Outcome]]


def page(
    chapters: Chapters, speeds: list[SpeedSection], counted: Mapping[str, Tally], costs: list[list[str]], scale: str
) -> str:
    """The whole page, self-contained."""
    outcomes = [outcome for own in chapters.values() for outcome in own]
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
            f'<p>{PAPER}, <a href="{ADDRESS}">arXiv 2002.09402</a>. {SOURCE}</p>',
            *(bar(tally.sentence(whose, scale), tally) for whose, tally in counted.items() if tally.verdicts),
            f'<p class="quiet">{key()}; {link("verdicts", VERDICTS.lower())}. {built(outcomes)}</p>',
            board(chapters, speeds),
            *(chapter(title, own) for title, own in chapters.items()),
            *([f"<h2>{SPEED_CHAPTER}</h2>"] if speeds else []),
            *map(speed_section, speeds),
            *([f"<h2>{COST_CHAPTER}</h2><p>{COSTS}</p>{table(HEADS, costs)}"] if costs else []),
            f'<section id="verdicts"><h2>{VERDICTS}</h2>{rules_list()}</section>',
            "</body></html>\n",
        ]
    )


def markdown(
    chapters: Chapters, speeds: list[SpeedSection], counted: Mapping[str, Tally], costs: list[list[str]], scale: str
) -> str:
    """The tables of the page."""
    outcomes = [outcome for own in chapters.values() for outcome in own]
    rows = [[one.experiment.title, one.experiment.place, one.overall()] for one in outcomes]
    rows += [[one.title, one.where, one.overall()] for one in speeds if one.claims]
    parts = [
        f"# {TITLE}",
        f"{PAPER}, [arXiv 2002.09402]({ADDRESS}). {SOURCE} {VERDICTS}:\n\n{RULES}",
        " ".join(tally.sentence(whose, scale) for whose, tally in counted.items() if tally.verdicts),
        built(outcomes),
        markdown_table(["experiment", "in the paper", "verdict"], rows),
    ]
    for title, own in chapters.items():
        parts += [f"## {title}", *(markdown_table(*suite) for suite in suites_of(title, own))]
        for outcome in own:
            parts += [f"### {outcome.experiment.title}", outcome.experiment.place_in_words, outcome.markdown()]
    parts += [f"## {SPEED_CHAPTER}"] if speeds else []
    for speed in speeds:
        about = f"{speed.place_in_words} {speed.about}"
        claims = [markdown_table(SPEED_HEADS, speed.claims)] if speed.claims else []
        parts += [f"### {speed.title}", about, *claims, *(table.markdown() for table in speed.tables)]
    parts += [f"## {COST_CHAPTER}", COSTS, markdown_table(HEADS, costs)] if costs else []
    return "\n\n".join(parts) + "\n"


def write_report(results: Path, path: Path, scale: str = "laptop") -> Path:
    """Write the page, and its tables as Markdown beside it; returns the path of the latter."""
    if not results.is_dir():
        raise ConfigError(f"--results = {results} is not a folder; make records with `feedback-transformer reproduce`")
    if path.is_dir():
        raise ConfigError(f"--out = {path} is a folder; name the page itself, for example {path / 'report.html'}")
    make_folder(path.parent)
    tables = path.with_suffix(".md")
    if tables == path:
        raise ConfigError(f"--out = {path} is where the tables would go; name the page itself, for example report.html")
    chapters, speeds = chapters_of(results, scale), speed_sections(results)
    costs = cost_rows(results / "paper" if scale == "laptop" else results)
    counted = tallies([outcome for own in chapters.values() for outcome in own], results)
    try:
        path.write_text(page(chapters, speeds, counted, costs, scale), encoding="utf-8")
        tables.write_text(markdown(chapters, speeds, counted, costs, scale), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename} ({error.strerror}); choose another --out") from None
    return tables


def rules_list() -> str:
    """The rules as HTML."""
    rules = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escape(RULES, quote=False)).removeprefix("- ").split("\n- ")
    return f"<ul>{''.join(f'<li>{rule}</li>' for rule in rules)}</ul>"


def chapters_of(results: Path, scale: str) -> Chapters:
    """The experiments that have runs at this scale."""
    chapters = {
        title: [Outcome(e, scale, results) for e in experiments if e.variants(scale)]
        for title, experiments in CHAPTERS.items()
    }
    return {title: outcomes for title, outcomes in chapters.items() if outcomes}


def built(outcomes: list[Outcome]) -> str:
    """When the page was built, and from what; records that experiments share are counted once."""
    shared = {key: records for outcome in outcomes for key, records in outcome.records.items()}
    seconds = [record["cpu_seconds"] for records in shared.values() for record in records]
    today = datetime.date.today().isoformat()
    return f"Built {today} from {len(seconds)} records, {sum(seconds) / 3600:.1f} core-hours."


def bar(sentence: str, tally: Tally) -> str:
    """All claims as one bar, below the sentence that counts them."""
    counts = {COLOURS[kind]: count for kind, count in tally.counts().items() if count}
    parts = "".join(f'<i class="{colour}" style="flex: {count}"></i>' for colour, count in counts.items())
    return f'<p>{sentence}</p>\n<div class="bar" aria-hidden="true">{parts}</div>'


def board(chapters: Chapters, speeds: list[SpeedSection]) -> str:
    """One row per experiment with one mark per claim, and one row per benchmark."""
    header, tables = ["experiment", "claims", "verdict"], []
    for title, outcomes in chapters.items():
        rows = [
            [
                link(o.experiment.name, o.experiment.title),
                marks([(answer.words, answer.verdict) for answer in o.claims()]),
                escape(o.overall()),
            ]
            for o in outcomes
        ]
        tables.append(table(header, rows, "words", title))
    if speeds:
        rows = [[link(speed.name, speed.title), marks(speed.verdicts), escape(speed.overall())] for speed in speeds]
        tables.append(table(["benchmark", *header[1:]], rows, "words", SPEED_CHAPTER))
    return f'<div class="board">{"".join(tables)}</div>'


def key() -> str:
    """What the marks mean."""
    return ", ".join(f'<span class="marks"><i class="{colour}"></i></span> {kind}' for kind, colour in COLOURS.items())


def marks(claims: Sequence[tuple[str, str]]) -> str:
    """One mark per claim and its verdict, which its tooltip gives."""
    said = [(COLOURS[kind_of(verdict)], f"{words}: {verdict}") for words, verdict in claims]
    inside = "".join(f'<i class="{colour}" title="{escape(words)}"></i>' for colour, words in said)
    return f'<span class="marks">{inside}</span>'


def suites_of(title: str, outcomes: list[Outcome]) -> list[tuple[list[str], list[list[str]]]]:
    """One table of all experiments of a chapter, where they share their models."""
    return [suite_rows(outcomes)] if title in SUITES.values() else []


def chapter(title: str, outcomes: list[Outcome]) -> str:
    """Its experiments, after a table of them all where there is one."""
    suites = [
        table(header, [list(map(escape, row)) for row in rows], caption=SUITE_CAPTIONS[title])
        for header, rows in suites_of(title, outcomes)
    ]
    return "\n".join([f"<h2>{escape(title)}</h2>", *suites, *map(section, outcomes)])


def section(outcome: Outcome) -> str:
    """Everything about one experiment."""
    experiment = outcome.experiment
    parts = [
        f'<section id="{experiment.name}"><h3>{escape(experiment.title)}</h3>',
        f'<p class="quiet">{escape(experiment.place_in_words)} {with_code(outcome.note())}</p>',
        claim_table(*outcome.claim_rows()),
    ]
    if any(outcome.records.values()):
        header, rows = outcome.rows()
        parts += [
            *charts_row(charts(outcome)),
            table(header, [list(map(escape, row)) for row in rows]),
            runs(outcome),
        ]
    return "\n".join([*parts, "</section>"])


def claim_table(heads: list[str], claims: Sequence[list[str]]) -> str:
    """Claims, the verdict last."""
    return table(heads, [[*map(escape, row[:-1]), badge(row[-1])] for row in claims], "words")


def runs(outcome: Outcome) -> str:
    """Each run with the command that reproduces it, folded."""
    rows = []
    for variant in outcome.variants:
        for record in outcome.records[variant.key]:
            score, minutes = f"{outcome.value(record, outcome.metric):.4g}", f"{record['cpu_seconds'] / 60:.1f}"
            cells = [f"{variant.label}, seed {record['run']['seed']}", score, minutes]
            command = train_command(replace(variant.run, seed=record["run"]["seed"]), outcome.scale)
            rows.append([*map(escape, cells), f"<code>{escape(command)}</code>"])
    made = table(["run", f"{outcome.split} {outcome.metric}", "minutes", "command"], rows, "words")
    return f"<details><summary>Each run and its command</summary>{made}</details>"


def speed_section(speed: SpeedSection) -> str:
    tables = [table(t.heads, [list(map(escape, row)) for row in t.rows], caption=t.title) for t in speed.tables]
    about = f'<p class="quiet">{escape(speed.place_in_words)} {with_code(speed.about)}</p>'
    head = f'<section id="{speed.name}"><h3>{escape(speed.title)}</h3>'
    claims = [claim_table(SPEED_HEADS, speed.claims)] if speed.claims else []
    return "\n".join([head, about, *claims, *charts_row(speed.charts), *tables, "</section>"])


def charts_row(charts: Sequence[Chart]) -> list[str]:
    """The charts side by side, if there are any."""
    return [f'<div class="charts">{"".join(chart.svg() for chart in charts)}</div>'] if charts else []


def link(name: str, title: str) -> str:
    return f'<a href="#{name}">{escape(title)}</a>'


def badge(said: str) -> str:
    """A verdict in its colour, and what follows it as plain text."""
    verdict, bracket, rest = said.partition(" (")
    return f'<span class="verdict {COLOURS[kind_of(verdict)]}">{escape(verdict)}</span>{escape(bracket + rest)}'


def with_code(text: str) -> str:
    """Words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def table(header: list[str], rows: list[list[str]], kind: str = "", caption: str = "") -> str:
    """Cells are HTML already; each carries its column's head, for narrow screens where a row becomes a list."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = [zip(header, row, strict=True) for row in rows]
    cells = ["".join(f'<td data-head="{escape(name)}"><span>{cell}</span></td>' for name, cell in row) for row in lines]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inside}</table></div>'
