"""Stopping a run without losing it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DivergedError(RuntimeError):
    """The loss, its gradient or a weight is no longer a finite number."""


class StoppedError(RuntimeError):
    """The run was asked to stop and has saved itself."""


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """A process that is started here does not hear of Ctrl-C while it imports; whoever started it stops it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stop_request() -> Iterator[threading.Event]:
    """Ctrl-C and `kill` set the event, so that a run stops between two updates; another Ctrl-C stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def ask(number: int, frame: object) -> None:
        if event.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
