"""What a person sees while a model learns: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30.0  # between two plain lines


def show_score(name: str, value: float) -> str:
    """`accuracy 99.65%`, but `bits 1.234`."""
    words = name.replace("_", " ")
    return f"{words} {value:.3f}" if name in ("bits", "bits_per_byte", "perplexity") else f"{words} {value:.2%}"


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

    def text(self) -> str:
        """The numbers in one line."""
        parts = [f"loss {self.loss:.3f}", f"accuracy {self.accuracy:.1%}"]
        if self.num_stages > 1:
            parts.append(f"stage {self.stage + 1}/{self.num_stages}")
        parts += [f"validation {show_score(name, value)}" for name, value in self.validation.items()]
        parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        return ", ".join(parts)


Reporter = Callable[[Update], None]


@contextmanager
def terminal_reporter(title: str, quiet: bool = False) -> Iterator[Reporter]:
    """A reporter that fits where the output goes."""
    console = Console(stderr=True)
    if quiet:
        yield lambda update: None
    elif console.is_terminal:
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}  {task.fields[text]}"),
            TimeRemainingColumn(),
        ]
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(title, total=None, text="")
            yield lambda update: progress.update(
                bar, completed=update.step, total=update.total_steps, text=update.text()
            )
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
