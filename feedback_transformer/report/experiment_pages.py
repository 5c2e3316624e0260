"""One Markdown page per experiment, generated from its file and its records: docs/experiments/NAME.md.

Nothing on these pages is written by hand, so they stay correct; remarks on an experiment go into its file.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from feedback_transformer import experiments
from feedback_transformer.experiments import CHAPTERS, EXPERIMENTS, speed
from feedback_transformer.experiments.experiment import Experiment, Record, Variant, train_command
from feedback_transformer.report.experiments import Outcome, overall
from feedback_transformer.report.tables import markdown_table

FOLDER = Path("docs/experiments")
ROOT = "../.."  # from there
GUIDES = {
    "Toy tasks": "toy_tasks.md",
    "Language modelling": "language_modelling.md",
    "Translation and summarization": "translation.md",
    "Reinforcement learning": "reinforcement_learning.md",
    "State tracking, beyond the paper": "state_tracking.md",
}
SPEED_TITLE, SPEED_PLACE = "Speed and memory", "Section 4.3.4, Table 5; Figure 4 (left); Sections 1 and 4.2.1"
NOISE_NOTE = (
    f"A ratio within {speed.NOISE:.0%} of the claimed one is not decided, nor one of Feedback to itself within "
    f"{speed.QUIET:.0%}."
)


def experiment_pages(results: Path) -> dict[str, str]:
    """The text of every page, by file name."""
    pages = {f"{name}.md": experiment_page(experiment, results) for name, experiment in EXPERIMENTS.items()}
    return {**pages, "speed.md": speed_page(results)}


def generated_from(file: str) -> str:
    return (
        f"Generated from [{file}]({ROOT}/{file}) and its records by `make readme`. All experiments: "
        "[results.md](../results.md)."
    )


def module_of(experiment: Experiment) -> ModuleType:
    """The file that defines the experiment."""
    modules = [module for module in vars(experiments).values() if isinstance(module, ModuleType)]
    own = {module: (*getattr(module, "EXPERIMENTS", ()), getattr(module, "EXPERIMENT", None)) for module in modules}
    return next(module for module in modules if experiment in own[module])


def experiment_page(experiment: Experiment, results: Path) -> str:
    outcome = Outcome(experiment, "laptop", results)
    module = module_of(experiment)
    assert module.__doc__ is not None
    file = f"feedback_transformer/experiments/{module.__name__.rpartition('.')[2]}.py"
    figure = f"![{experiment.title}]({ROOT}/results/{experiment.name}.svg)"
    command = f"    feedback-transformer reproduce {experiment.name}"
    paper = f"\n{command} --scale paper     the published hyperparameters" if experiment.variants("paper") else ""
    parts = [
        f"# {experiment.title}",
        generated_from(file),
        f"{experiment.place_in_words} Verdict: **{outcome.overall()}**.",
        module.__doc__.strip(),
        *task_description(experiment),
        "## Results",
        f"{command} --plan            what would be run, and what it costs\n"
        f"{command} --jobs 2          train what has no record yet, two runs at a time\n"
        f"{command} --scale smoke     tiny models, a minute or two: does it run?{paper}",
        outcome.markdown(),
        *([figure] if any(outcome.records.values()) else []),
        "## The runs",
        "Each command trains one run; change `--seed` for another seed. A record holds the configuration, commit,\n"
        "machine, cost, learning curve and scores.",
        markdown_table(
            ["run", "command", "records, by seed"], [_run(v, outcome.records[v.key]) for v in outcome.variants]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def task_description(experiment: Experiment) -> list[str]:
    """What the models are asked, from the task itself, and where to read on."""
    chapter = next(title for title, own in CHAPTERS.items() if experiment in own)
    parts = [f"The tasks, and what we found: [{GUIDES[chapter]}](../{GUIDES[chapter]}). Trials: [log.md](../log.md)."]
    task = experiment.variants("laptop")[0].run.task
    if not hasattr(task, "data"):  # a corpus is described there
        parts = ["## The task", inspect.cleandoc(type(task).__doc__ or ""), *parts]
    return parts


def speed_page(results: Path) -> str:
    """Table 5, which is measured and not trained."""
    assert speed.__doc__ is not None
    file = "feedback_transformer/experiments/speed.py"
    parts = [
        f"# {SPEED_TITLE}",
        generated_from(file),
        f"In the paper: {SPEED_PLACE}. Verdict: **{speed_overall(results)}**.",
        speed.__doc__.strip(),
        "    feedback-transformer reproduce speed             measure what has no record yet, then the table below\n"
        "    feedback-transformer reproduce speed --plan      what would be measured\n"
        "    feedback-transformer reproduce speed --scale smoke --results trial    tiny models: does it run?",
        markdown_table(*speed.speed_rows(results)),
        f"{NOISE_NOTE} All benchmarks, and where the time goes: [engines.md](../engines.md), "
        "[language_modelling.md](../language_modelling.md), [translation.md](../translation.md), "
        "[reinforcement_learning.md](../reinforcement_learning.md).",
    ]
    return "\n\n".join(parts) + "\n"


def speed_overall(results: Path) -> str:
    return overall([verdict for _, verdict in speed.claim_verdicts(results)])


def _run(variant: Variant, records: list[Record]) -> list[str]:
    seeds = [record["run"]["seed"] for record in records]
    links = [f"[{seed}]({ROOT}/results/{variant.key}-seed-{seed}.json)" for seed in seeds]
    return [variant.label, f"`{train_command(variant.run, 'laptop')}`", " ".join(links) or "none yet"]


def write_pages(results: Path, folder: Path = FOLDER) -> None:
    """Write all pages and delete any others."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = experiment_pages(results)
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def verdict_table(results: Path) -> str:
    """One row per experiment, for a page in docs/."""
    outcomes = [Outcome(experiment, "laptop", results) for experiment in EXPERIMENTS.values()]
    rows = [
        [
            f"[{outcome.experiment.title}](experiments/{outcome.experiment.name}.md)",
            outcome.experiment.place,
            f"{outcome.cost_hours():.1f}",
            outcome.overall(),
        ]
        for outcome in outcomes
    ]
    rows.append([f"[{SPEED_TITLE}](experiments/speed.md)", SPEED_PLACE, "-", speed_overall(results)])
    return markdown_table(["experiment", "in the paper", "core-hours", "verdict"], rows)
