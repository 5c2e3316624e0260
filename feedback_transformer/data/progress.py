"""Progress of a long read or download: a bar in a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

PLAIN_SECONDS = 10.0  # between two plain lines

Report = Callable[[int, "int | None"], None]  # bytes done, bytes in all if known


def silent(done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def byte_progress(title: str) -> Iterator[Report]:
    """A report function that suits the output: a bar in a terminal, else plain lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainLines(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


class PlainLines:
    """Prints nothing for what takes seconds, and occasional lines for what takes longer."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.last = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        if time.monotonic() - self.last < PLAIN_SECONDS:
            return
        self.last = time.monotonic()
        whole = f" of {total / 1e6:,.1f}" if total else ""
        print(f"{self.title}: {done / 1e6:,.1f}{whole} MB", file=sys.stderr, flush=True)
