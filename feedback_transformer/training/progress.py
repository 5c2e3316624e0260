"""A run's progress, and how it is shown: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

RUNNING = 0.98  # decay of the running accuracy
PLAIN_SECONDS = 30.0  # between two plain lines


def show_score(name: str, value: float) -> str:
    """`accuracy 99.65%`, but `bits 1.234`, `reward 1.234` and `bleu 27.31`."""
    words = name.replace("_", " ")
    if name in ("bits", "bits_per_byte", "perplexity", "reward"):
        return f"{words} {value:.3f}"
    plain = "bleu" in name or "rouge" in name or name == "words_per_second"
    return f"{words} {value:,.2f}" if plain else f"{words} {value:.2%}"


@dataclass
class Progress:
    """The numbers that a resumed run continues from."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    running_accuracy: float = 0.0  # from zero, so that a stage is not passed by a few lucky updates
    running_updates: int = 0  # that it is of
    best: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    main_steps: int | None = None  # where training ended early and fine-tuning began
    command: str = ""  # that began it
    commits: list[str | None] = field(default_factory=list)  # of the code it was run with
    curve: list[dict[str, Any]] = field(default_factory=list)

    def see(self, accuracy: float) -> None:
        """Take the accuracy of an update into the running one."""
        self.running_accuracy = RUNNING * self.running_accuracy + (1 - RUNNING) * accuracy
        self.running_updates += 1

    @property
    def accuracy(self) -> float:
        """The running accuracy as a mean of what was seen since it began."""
        return self.running_accuracy / (1 - RUNNING**self.running_updates) if self.running_updates else 0.0


@dataclass(frozen=True)
class Update:
    """Where a run stands."""

    step: int
    total_steps: int
    tokens: int
    loss: float
    accuracy: float  # running, on the training stream
    stage: int
    num_stages: int
    tokens_per_second: float
    seconds_left: float
    validation: dict[str, float] = field(default_factory=dict)  # newest scores
    measure: str = "accuracy"  # what `accuracy` is; empty if it is unknown
    unit: str = "tokens"  # what `tokens` are

    def training(self) -> str:
        """How it does on the training stream."""
        return show_score(self.measure, self.accuracy) if self.measure else ""

    def text(self) -> str:
        """The numbers in one line."""
        parts = [f"loss {self.loss:.3f}", self.training()]
        if self.num_stages > 1:
            parts.append(f"stage {self.stage + 1}/{self.num_stages}")
        parts += [f"validation {show_score(name, value)}" for name, value in self.validation.items()]
        parts.append(f"{self.tokens_per_second:,.0f} {self.unit}/s")
        return ", ".join(filter(None, parts))


Reporter = Callable[[Update], None]


class Line(Bars):
    """A bar, and below it the numbers, on as many lines as they need."""

    numbers = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.numbers, style="dim")


@contextmanager
def terminal_reporter(title: str, quiet: bool = False) -> Iterator[Reporter]:
    """A reporter that suits the output: live in a terminal, else plain lines."""
    console = Console(stderr=True)
    if quiet:
        yield lambda update: None
    elif console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn()
        with Line(*columns, console=console) as bars:
            bar = bars.add_task(title, total=None)

            def report(update: Update) -> None:
                bars.numbers = update.text()
                bars.update(bar, completed=update.step, total=update.total_steps)

            yield report
    else:
        yield PlainReporter(title)


class PlainReporter:
    """A line now and then, and one at every evaluation."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.last = 0.0
        self.shown: dict[str, float] = {}

    def __call__(self, update: Update) -> None:
        news = update.validation != self.shown or update.step == update.total_steps
        if news or time.monotonic() - self.last > PLAIN_SECONDS:
            self.last, self.shown = time.monotonic(), update.validation
            left = f"{update.seconds_left / 60:.0f} min left"
            print(
                f"{self.title}: {update.step}/{update.total_steps}, {update.text()}, {left}",
                file=sys.stderr,
                flush=True,
            )
