"""`feedback-transformer bench`: measure, print, and write a record and a chart."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table as RichTable

from feedback_transformer.benchmarks import language, translation, worlds
from feedback_transformer.benchmarks.contenders import Contender, contenders
from feedback_transformer.benchmarks.memory import peak_megabytes
from feedback_transformer.benchmarks.shapes import QUICK, Shape, find_shapes
from feedback_transformer.benchmarks.spans import measure_spans
from feedback_transformer.benchmarks.speed import best_rate, calls_within, machine, take_turns
from feedback_transformer.commands.command import Command
from feedback_transformer.config import ConfigError
from feedback_transformer.report import spans as span_report
from feedback_transformer.report import speed as report
from feedback_transformer.report.whole_models import LANGUAGE, TRANSLATION, whole_model_tables
from feedback_transformer.report.worlds import world_tables
from feedback_transformer.training.checkpoint import make_folder, write_json
from feedback_transformer.training.record import read_record

MEASUREMENTS = ("training", "memory", "generation")
DROPOUT, REPEATS = [0.2, 0.0], 3
HELP = """\
examples:
  feedback-transformer bench                                  the whole benchmark, about a quarter of an hour
  feedback-transformer bench --quick                          takes seconds: does it run?
  feedback-transformer bench --shapes B64 --contenders native transformer --measure training
  feedback-transformer bench --language                       a whole language model at a shape of the paper
  feedback-transformer bench --translation                    a whole encoder-decoder with 6 and 2 layers
  feedback-transformer bench --spans                          what short adaptive spans save, a few minutes

All contenders take turns in one run, and the best of several turns counts, because a machine is never quite idle.
Public implementations take part if they are installed:
  pip install --no-deps feedback-transformer-pytorch einops labml-nn
A whole benchmark replaces its record in results/; part of one (--quick, --shapes, ..) is written beside it. --out
chooses another place.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("--quick", action="store_true", help="one tiny shape, one repeat, to check that it runs")
    add("--shapes", nargs="+", default=[], metavar="TEXT", help="only shapes with one of these in their name")
    add("--contenders", nargs="+", default=[], metavar="NAME", help="only these contenders, such as native")
    add("--measure", nargs="+", default=list(MEASUREMENTS), choices=MEASUREMENTS, help="what to measure")
    add(
        "--dropout",
        nargs="+",
        type=float,
        default=DROPOUT,
        help="dropout rates; memory is measured at the first (0.2 0)",
    )
    add("--repeats", type=int, default=REPEATS, help="turns of each contender, the best of which counts (3)")
    add("--threads", type=int, default=1, help="CPU threads (1)")
    add(
        "--language",
        action="store_true",
        help="instead: a whole language model, the paper's small one for WikiText-103",
    )
    add("--translation", action="store_true", help="instead: a whole encoder-decoder with 6 and 2 layers")
    add("--spans", action="store_true", help="instead: time and memory of training as adaptive spans shrink")
    add("--worlds", action="store_true", help="instead: the reinforcement-learning worlds, and learning in them")
    others = "".join(f", with --{name} {kind.out}" for name, kind in APART.items())
    add(
        "--out",
        type=Path,
        help=f"write PATH.json and PATH.png ({WHOLE.out}{others}; for part of a benchmark, as with --quick, PATH-part)",
    )
    add("--from-record", type=Path, metavar="JSON", help="measure nothing; show this record, and with --out draw it")


def refuse_mixtures(args: argparse.Namespace) -> None:
    """One benchmark at a time; options that choose a part of the one of the engines are for that one."""
    apart = [f"--{name}" for name in APART if getattr(args, name)]
    if len(apart) > 1:
        raise ConfigError(f"{' and '.join(apart)} are benchmarks of their own; run one after the other")
    defaults = {"shapes": [], "contenders": [], "measure": list(MEASUREMENTS), "dropout": DROPOUT}
    for name, usual in defaults.items():
        if apart and getattr(args, name) != usual and (name != "contenders" or not args.spans):
            raise ConfigError(f"--{name} has no meaning with {apart[0]}, which always measures the same; leave it out")


def run(args: argparse.Namespace) -> int:
    """Measure what the options ask for."""
    for name in ("repeats", "threads"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} = {getattr(args, name)} must be 1 or more")
    for rate in args.dropout:
        if not 0 <= rate < 1:
            raise ConfigError(f"--dropout = {rate:g} must be at least 0 and less than 1")
    refuse_mixtures(args)
    console = Console()
    one = next((kind for name, kind in APART.items() if getattr(args, name)), WHOLE)
    out = args.out or args.from_record or _place(one, args)
    out = out.with_suffix("") if out.suffix in (".json", ".png") else out  # a name may have dots
    path: Path = args.from_record or out.with_name(f"{out.name}.json")
    record: report.Record | None = read_record(path) if args.from_record else None
    if record is None:
        make_folder(out.parent)  # before it takes a quarter of an hour
        before = torch.get_num_threads()
        torch.set_num_threads(args.threads)
        try:
            record = one.measure(args, console)
        finally:
            torch.set_num_threads(before)
        write_json(path, record | {"quick": args.quick})
    try:
        tables = one.tables(record)
    except (KeyError, TypeError) as error:
        kinds = ", ".join(f"--{name}" for name in APART)
        raise ConfigError(
            f"{path} has no {error}: it is a record of another kind; choose its option ({kinds}, or none)"
        ) from None
    for table in tables:
        console.print(_rich(table))
    console.print(f"record: {path}")
    if one.draw is not None and (args.out or not args.from_record):
        make_folder(out.parent)
        chart = out.with_name(f"{out.name}.png")
        if one.draw(record, chart):
            console.print(f"chart: {chart}")
    return 0


def _place(one: Benchmark, args: argparse.Namespace) -> Path:
    """A part of a benchmark does not replace the record of the whole."""
    part = args.quick or args.shapes or args.contenders or set(args.measure) < set(MEASUREMENTS)
    other = args.dropout != DROPOUT or args.threads != 1 or args.repeats < REPEATS
    return one.out if not (part or other) else one.out.with_name(f"{one.out.name}-part")


def measure(args: argparse.Namespace, console: Console) -> report.Record:
    """The whole benchmark as a record."""
    shapes = QUICK if args.quick else find_shapes(args.shapes)
    repeats = 1 if args.quick else args.repeats
    present, skipped = _present(args.contenders)
    record: report.Record = {
        "machine": machine(),
        "settings": {
            "repeats": repeats,
            "steps": shapes[0].steps,
            "shapes": [s.name for s in shapes],
            "dropout": args.dropout,
        },
        "notes": {contender.name: contender.note for contender in present},
        "skipped": skipped,
        **{name: [] for name in ("training", "floor", "memory", "generation")},
    }
    for shape in shapes:
        if "training" in args.measure:
            _measure_training(record, shape, present, args.dropout, repeats, console)
        if "memory" in args.measure:
            _measure_memory(record, shape, present, args, console)
    if "generation" in args.measure:
        _measure_generation(record, shapes, present, repeats, args.quick, console)
    return record


def _measure_spans(args: argparse.Namespace, console: Console) -> report.Record:
    present, skipped = _present(args.contenders or ["native", "fused", "transformer"])
    return measure_spans(present, 1 if args.quick else 4 * args.repeats, args.quick, console) | {"skipped": skipped}


def _present(wanted: list[str]) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that can run here, and why the others cannot."""
    known = contenders()
    unknown = set(wanted) - {contender.name for contender in known}
    if unknown:
        names = ", ".join(contender.name for contender in known)
        raise ConfigError(f"no contender is called {', '.join(sorted(unknown))}; choose among {names}")
    asked = [contender for contender in known if not wanted or contender.name in wanted]
    reasons = {contender.name: contender.unavailable() for contender in asked}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    return [contender for contender in asked if contender.name not in skipped], skipped


def _measure_training(
    record: report.Record,
    shape: Shape,
    present: list[Contender],
    dropouts: Iterable[float],
    repeats: int,
    console: Console,
) -> None:
    kinds = [(dropout, True) for dropout in dropouts] + [(record["settings"]["dropout"][0], False)]
    for dropout, shared in kinds:
        console.print(f"training {shape.name}, dropout {dropout:g}, {'shared' if shared else 'per layer'}", style="dim")
        taking_part = [one for one in present if shared or one.per_layer or one.name == report.REFERENCE]
        runs = {one.name: one.train(shape, dropout, shared) for one in taking_part}
        for name, seconds in take_turns(runs, repeats).items():
            record["training"].append(
                {"shape": shape.name, "dropout": dropout, "shared_kv": shared, "contender": name}
                | _speed(seconds, shape.tokens)
            )
    rate = best_rate(shape, repeats)
    for shared in (True, False):
        seconds = shape.arithmetic(shared) / rate
        row = {"shape": shape.name, "shared_kv": shared, "gigaflops": rate / 1e9} | _speed(seconds, shape.tokens)
        record["floor"].append(row)


def _measure_memory(
    record: report.Record, shape: Shape, present: list[Contender], args: argparse.Namespace, console: Console
) -> None:
    console.print(f"memory {shape.name}", style="dim")
    dropout = args.dropout[0]
    for contender in present:
        megabytes = peak_megabytes(contender.name, shape, dropout, True, args.threads)
        record["memory"].append(
            {"shape": shape.name, "dropout": dropout, "shared_kv": True, "contender": contender.name}
            | {"megabytes": round(megabytes, 1)}
        )


def _measure_generation(
    record: report.Record, shapes: tuple[Shape, ...], present: list[Contender], repeats: int, quick: bool,
    console: Console,
) -> None:  # fmt: skip
    """The largest model width, at every requested memory size."""
    widest = max(shape.model_dim for shape in shapes)
    by_memory = {shape.memory_size: shape for shape in shapes if shape.model_dim == widest}
    for shape in by_memory.values():
        for batch in (1, 32):
            console.print(f"generation S{shape.memory_size} B{batch}", style="dim")
            runs = {one.name: one.generate(shape, batch) for one in present if one.generate is not None}
            for run_ in runs.values():  # the first steps may copy a window into a buffer of its own
                run_()
            calls = 2 if quick else min(calls_within(run_, 0.5) for run_ in runs.values()) if runs else 1
            for name, seconds in take_turns(runs, max(repeats, 1 if quick else 4), max(calls, 2)).items():
                record["generation"].append(
                    {"memory_size": shape.memory_size, "batch": batch, "contender": name} | _speed(seconds, batch)
                )


def _speed(seconds: float, tokens: int) -> dict[str, float]:
    return {"seconds": seconds, "tokens_per_second": tokens / seconds}


def _rich(table: report.Table) -> RichTable:
    shown = RichTable(title=table.title, title_justify="left")
    for index, head in enumerate(table.heads):
        shown.add_column(head, justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


class Benchmark(NamedTuple):
    """One kind of benchmark: where its record goes, what is measured, how it is shown and drawn."""

    out: Path
    measure: Callable[[argparse.Namespace, Console], report.Record]
    tables: Callable[[report.Record], list[report.Table]]
    draw: Callable[[report.Record, Path], bool] | None = None


def _simple(measure: Callable[[bool, int, Console], report.Record]) -> Callable[..., report.Record]:
    return lambda args, console: measure(args.quick, 1 if args.quick else args.repeats, console)


WHOLE = Benchmark(Path("results/bench"), measure, report.tables, report.draw_chart)
APART = {
    "language": Benchmark(
        Path("results/speed-wikitext-103-small"),
        _simple(language.measure),
        lambda record: whole_model_tables(record, LANGUAGE),
    ),
    "translation": Benchmark(
        Path("results/speed-translation"),
        _simple(translation.measure),
        lambda record: whole_model_tables(record, TRANSLATION),
    ),
    "spans": Benchmark(
        Path("results/span"), _measure_spans, lambda one: [span_report.table(one)], span_report.draw_chart
    ),
    "worlds": Benchmark(Path("results/bench-worlds"), _simple(worlds.measure), world_tables),
}


COMMANDS = (
    Command("bench", "measure speed and memory of all engines, side by side with peers", HELP, add_arguments, run),
)
