"""The code in documents runs, their commands are understood, and their numbers are those of the records."""

from __future__ import annotations

import re
import runpy
import shlex
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from feedback_transformer.benchmarks.shapes import find_shapes
from feedback_transformer.cli import understand
from feedback_transformer.commands import reproduce
from feedback_transformer.commands.train import run_to_train
from feedback_transformer.config import ActConfig, ConfigError, ModelConfig, TrainConfig
from feedback_transformer.data.corpora import KNOWN
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.experiments import EXPERIMENTS, GROUPS, SUITES
from feedback_transformer.report.experiment_figures import figure
from feedback_transformer.report.experiment_pages import experiment_pages
from feedback_transformer.report.experiments import Outcome
from feedback_transformer.report.readme import filled
from feedback_transformer.tasks import TASKS

ROOT = Path(__file__).resolve().parent.parent
TASK_KINDS = {type(entry.task) for entry in TASKS.values()}
FIELDS = {field.name for kind in (ModelConfig, TrainConfig, ActConfig, *TASK_KINDS) for field in fields(kind)}
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


# A block of Python, and what it prints where that stands indented behind it.
PYTHON = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]+\n)+))?", flags=re.DOTALL)
WITH_PYTHON = [path for path in DOCUMENTS if PYTHON.search(path.read_text())]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda path: path.name)
def test_python_in_documents_runs_from_top_to_bottom(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code, prints in PYTHON.findall(path.read_text()):
        exec(compile(code, str(path), "exec", dont_inherit=True), names)
        said = capsys.readouterr().out
        assert not prints or said == textwrap.dedent(prints), "it prints what the document says"
    if path.name == "README.md":
        assert names["loss"].item() < 0.5, "the model of the README learns its task"
    if path.name == "tutorial.md":
        assert names["difference"] < 1e-5
        assert names["right"]["feedback"][90:].mean() > 0.95
        assert names["right"]["transformer"][90:].mean() < 0.4


def fences_in(text: str) -> list[str]:
    """What the fences of a document hold: `python`, which is run, or nothing, for commands and their output."""
    found = re.findall(r"^ *(```.*|~~~.*)$", text, flags=re.MULTILINE)
    assert len(found) % 2 == 0, "one is not closed"
    assert set(found[::2]) <= {"```python", "```"}, found
    assert set(found[1::2]) <= {"```"}, found
    return [fence.removeprefix("```") for fence in found[::2]]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_code_in_documents_is_left_out(path: Path) -> None:
    text = path.read_text()
    assert len(PYTHON.findall(text)) == fences_in(text).count("python")
    assert not re.search(r"^ *(import \w|from [\w.]+ import)", re.sub(PYTHON, "", text), re.MULTILINE), "run all code"


def test_code_that_would_not_be_run_is_noticed() -> None:
    for text in ("~~~python\n1/0\n~~~\n", '```python title="x"\n1/0\n```\n', "```py\n1/0\n```\n", "```python\n1\n"):
        with pytest.raises(AssertionError):
            fences_in(text)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run_and_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40
    runpy.run_path(str(path))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_in_documents_are_those_of_the_records(path: Path) -> None:
    assert filled(path.read_text(), ROOT / "results") == path.read_text(), "run `make readme`"


def test_every_experiment_has_its_page_and_figure_as_the_records_have_it() -> None:
    pages = {path.name: path.read_text() for path in (ROOT / "docs" / "experiments").glob("*.md")}
    assert pages == experiment_pages(ROOT / "results"), "run `make readme`"
    for name, experiment in EXPERIMENTS.items():
        if drawn := figure(Outcome(experiment, "laptop", ROOT / "results")):
            assert (ROOT / "results" / f"{name}.svg").read_text() == drawn, "run `make readme`"


def test_every_experiment_has_its_place_in_a_document() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    together = {name for suite in SUITES if f"<!-- table:{suite} -->" in text for name in GROUPS[suite]}
    assert [name for name in EXPERIMENTS if f"<!-- table:{name} -->" not in text and name not in together] == []
    assert [name for name in EXPERIMENTS if text.count(f"](../results/{name}.svg)") > 1] == [], "one figure is enough"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


COMMANDS = "train|evaluate|generate|watch|prepare|bench|reproduce|report|translate|summarize|tune|average|score"
OTHERS = r"make|pip|pytest|torchrun(?= -)|python3?(?= -)"  # programs that the documents call


def commands_in(text: str) -> list[list[str]]:
    """The command lines of a document, what is explained behind two spaces left out; a pipe is several."""
    lines = re.findall(
        rf"^(?:    )?(?:\$ )?((?:feedback-transformer|{OTHERS}) .*|.*\| feedback-transformer .*)$", text, re.M
    )
    lines += re.findall(r"`(feedback-transformer [^`]*)`", text)
    # And those that leave its name away, as tables do; an option alone, as `train --resume`, is no command.
    short = [line for line in re.findall(rf"`((?:{COMMANDS}) [^`\n]+)`", text) if not re.fullmatch(r"\w+ --\S+", line)]
    lines += [f"feedback-transformer {line}" for line in short]
    parts = [part for line in lines for part in line.split("  ")[0].split(" | ")]
    found = [
        shlex.split(re.split(r" [<>] ", part)[0], comments=True) for part in parts
    ]  # without files read or written
    return [words for words in found if words[0] != "echo"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_are_understood(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options exist, tasks, presets and fields too; nothing is run."""
    for words in commands_in(path.read_text()):
        check_command(words)


def check_command(words: list[str]) -> None:
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets), words
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in rest if "/" in word), words
    elif program == "torchrun":
        check_names(rest[rest.index("feedback_transformer") + 1 :])
    elif program == "feedback-transformer":
        check_names(rest)
    elif program == "pip":
        assert rest[0] == "install", words
    else:
        assert program.startswith("python"), words


def check_names(words: list[str]) -> None:
    """What the parser lets through is looked up when a command runs: here too."""
    command, options = words[0], understand(words)
    if command == "train" and options.resume is None:
        run_to_train(options)
    elif command == "reproduce":
        reproduce.results_folder(options)
        if options.experiment not in (reproduce.SPEED, "NAME"):
            reproduce.choose(options.experiment)
    elif command == "prepare" and options.corpus != "CORPUS":
        assert options.corpus in {*KNOWN, *PAIR_CORPORA}, options.corpus
    elif command == "bench":
        find_shapes(options.shapes)
    elif command == "report":
        assert options.scale in reproduce.SCALES
    for name in (text.partition("=")[0] for text in getattr(options, "overrides", ())):
        assert name in FIELDS, words


def test_a_command_that_is_wrong_is_not_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "train ptb-char --presets paper",
        "generat runs/x",
        "evaluate runs/x --length 3",
        "train ptb-char num_layer=2",
        "reproduce nosuch-experiment",
        "reproduce depth --scale huge",
        "prepare nosuch",
        "bench --shapes nosuch",
        "report --scale huge",
        "evaluate runs/x lenght=1000",
        "tune RUN beem=1",
    ):
        with pytest.raises((SystemExit, ConfigError, AssertionError)):
            check_names(line.split())
    name = "feedback-transformer"
    assert commands_in(f"    {name} list fields     every field\n") == [[name, "list", "fields"]]
    assert commands_in("| `tune RUN beam=1` | `train --resume` |") == [[name, "tune", "RUN", "beam=1"]]
    for line in ("make nosuch", f"$ {name} generat x", f"echo x | {name} translat y", "pytest tests/nosuch"):
        with pytest.raises((SystemExit, AssertionError)):
            check_command(commands_in(f"    {line}\n")[-1])


def test_all_that_the_paper_map_names_exists() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text()
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 30
    for name in named:
        assert f"def {name}(" in tests, name
    for file, name in re.findall(r"`([\w/]+\.py)`(?: `(\w+)`)?", text):
        path = ROOT / file if file.startswith("tests/") else ROOT / "feedback_transformer" / file
        assert path.exists(), file
        assert re.search(rf"^ *(class|def) {name}\b|^{name}\b", path.read_text(), re.MULTILINE), f"{file} {name}"
