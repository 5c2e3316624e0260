"""What a command is: every module here has `COMMANDS`, and `cli.py` puts them together."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

BAD_INPUT = 2  # an exit code; `FAILED` and `INTERRUPTED` are those of `experiments/running.py`


class Command(NamedTuple):
    """A word after `feedback-transformer`."""

    name: str
    summary: str
    help: str  # shown by `--help` below the options, examples first
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]  # returns the exit code
