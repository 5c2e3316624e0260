"""The house: each room imports only from those above it, and files stay small enough to read."""

from __future__ import annotations

import ast
from pathlib import Path

import feedback_transformer

PACKAGE = Path(feedback_transformer.__file__).parent
ROOMS = [
    "config",
    "kernels",
    "model",
    "data",
    "decoding",
    "environments",
    "tasks",
    "training",
    "presets",
    "experiments",
    "report",
    "benchmarks",
    "commands",
    "cli",
]
DOORS = {"__init__", "__main__"}  # these may name anything


def imports(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("feedback_transformer.")}
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_each_room_imports_only_from_those_above_it() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        here = room(path)
        if here in DOORS:
            continue
        assert here in ROOMS, f"{path} is in no room; add the room to the house or move the file"
        allowed = set(ROOMS[: ROOMS.index(here) + 1])
        wrong += [f"{path.relative_to(PACKAGE)} imports {name}" for name in sorted(imports(path) - allowed)]
    assert not wrong


def test_model_knows_nothing_of_data_tasks_and_training() -> None:
    for path in (PACKAGE / "model").glob("*.py"):
        assert imports(path) <= {"config", "kernels", "model"}


def test_no_room_without_a_purpose() -> None:
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert not names & {"utils", "common", "helpers", "misc"}


def test_files_can_be_read_in_one_go() -> None:
    long = {path.name: n for path in PACKAGE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 400}
    assert not long
