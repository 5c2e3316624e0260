"""`feedback-transformer report`: one page on all experiments."""

from __future__ import annotations

import argparse
from pathlib import Path

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.reproduce import results_folder
from feedback_transformer.report.page import write_report

HELP = """\
examples:
  feedback-transformer report
  feedback-transformer report --results results --out report.html

Claims, verdicts, tables, learning curves, cost and commands of every experiment, made from its records alone, in one
self-contained file for a screen (dark or light), a phone or paper. The tables are also written to a .md beside it.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--out", type=Path, default=Path("report.html"), help="the page; its tables go beside it as .md (report.html)"
    )
    sub.add_argument("--scale", default="laptop", help="scale of the runs: smoke, laptop or paper (laptop)")
    sub.add_argument("--results", type=Path, help="folder of the records (results, or results/SCALE if not laptop)")


def run(options: argparse.Namespace) -> int:
    results = results_folder(options)
    tables = write_report(results, options.out, options.scale)
    if not any(results.glob("*/*-seed-*.json")):
        print(f"there is no record in {results} yet; `feedback-transformer reproduce NAME` makes them")
    print(f"wrote {options.out}, to open in a browser, and its tables as Markdown: {tables}")
    return 0


COMMANDS = (Command("report", "write one page on all experiments, from their records", HELP, add_arguments, run),)
