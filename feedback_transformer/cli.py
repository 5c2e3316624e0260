"""The command `feedback-transformer`: name -> function."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from feedback_transformer import __version__
from feedback_transformer.benchmarks import command as bench
from feedback_transformer.commands import prepare, reproduce, translate, watch
from feedback_transformer.commands.help import (
    BENCH_HELP,
    DEMO_HELP,
    EVALUATE_HELP,
    GENERATE_HELP,
    LIST_HELP,
    PREPARE_HELP,
    REPORT_HELP,
    REPRODUCE_HELP,
    TRAIN_HELP,
    WATCH_HELP,
)
from feedback_transformer.commands.machine import add_machine_options, check_device, positive_number, seed_number
from feedback_transformer.config import (
    COMPOSITIONS,
    CORES,
    ActConfig,
    ConfigError,
    ModelConfig,
    TrainConfig,
    parse_assignments,
)
from feedback_transformer.data.corpora import KNOWN, DataError
from feedback_transformer.data.corpus import Corpus
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.data.vocabulary import Tokens
from feedback_transformer.decoding import Sampling, generate, text_pieces
from feedback_transformer.experiments import EXPERIMENTS, GROUPS
from feedback_transformer.kernels import engines
from feedback_transformer.presets import SCALES, configured
from feedback_transformer.report.page import write_report
from feedback_transformer.tasks import TASKS
from feedback_transformer.tasks.language import Language
from feedback_transformer.tasks.translation import Translation
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.loading import corpus_of, load_run, locate, read_config, take_corpus
from feedback_transformer.training.parallel import follows, local_device
from feedback_transformer.training.progress import show_score, terminal_reporter
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError
from feedback_transformer.training.supervised import DivergedError, score, train

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
LISTS = ("tasks", "corpora", "presets", "engines", "experiments", "fields")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake ends in one sentence and exit code 2."""
    options = understand(arguments)
    try:
        if getattr(options, "threads", None):
            torch.set_num_threads(options.threads)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except (ConfigError, CheckpointError, DataError) as error:
        return complain(str(error), BAD_INPUT)
    except DivergedError as error:
        return complain(str(error), FAILED)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error):
            return complain(f"there is not enough memory ({str(error).splitlines()[0]})", FAILED)
        raise
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return FAILED


def understand(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments (`command` is the function to call), or exit with code 2."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    strange = [word for word in rest if word.startswith("-") or "overrides" not in options]
    if strange:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if rest:
        options.overrides += rest  # argparse by itself does not take field=value after options
    return options


def complain(sentence: str, code: int) -> int:
    print(f"feedback-transformer: {sentence}", file=sys.stderr)
    return code


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="feedback-transformer",
        description="The Feedback Transformer (arXiv 2002.09402): train it, evaluate it, compare it with its peers.",
        epilog="Start with `feedback-transformer demo`; `feedback-transformer COMMAND --help` shows examples.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, function: Callable[[argparse.Namespace], int], summary: str, epilog: str) -> Any:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=function)
        return sub

    sub = add("train", run_train, "train a model on a task", TRAIN_HELP)
    sub.add_argument("task", nargs="?", help="a task; see `feedback-transformer list tasks`")
    sub.add_argument(
        "overrides", nargs="*", metavar="field=value", help="set a field of the task, the model or the training"
    )
    sub.add_argument("--preset", default="laptop", help=f"preset to start from: {', '.join(SCALES)} (laptop)")
    sub.add_argument("--out", type=Path, help="folder of the run (runs/TASK-CORE-PRESET-SEED)")
    sub.add_argument("--resume", type=Path, metavar="FOLDER", help="continue the run in this folder")
    sub.add_argument("--quiet", action="store_true", help="print only the final result")
    add_machine_options(sub)

    sub = add("evaluate", run_evaluate, "score a trained model on its task", EVALUATE_HELP)
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument("overrides", nargs="*", metavar="field=value", help="set a field of the task")
    sub.add_argument("--episodes", type=int, help="number of episodes (that of the run's test set)")
    sub.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_machine_options(sub)

    sub = add("prepare", prepare.run, "turn a corpus or your own text into tokens to train on", PREPARE_HELP)
    prepare.add_arguments(sub)

    sub = add("generate", run_generate, "generate text with a trained language model", GENERATE_HELP)
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument("overrides", nargs="*", metavar="data=FOLDER", help="where the corpus is, if it has moved")
    sub.add_argument("--prompt", help="text to continue (a new line, or how the training text begins)")
    sub.add_argument("--max-tokens", type=int, default=500, help="number of tokens to generate (500)")
    sub.add_argument("--temperature", type=float, default=1.0, help="0 always takes the likeliest token (1)")
    sub.add_argument("--top-k", type=int, default=0, help="sample among the k likeliest tokens (0: among all)")
    sub.add_argument(
        "--top-p", type=float, default=1.0, help="sample among the likeliest with this total probability (1)"
    )
    sub.add_argument("--samples", type=int, default=1, help="number of texts, generated in parallel (1)")
    add_machine_options(sub)

    sub = add("watch", watch.run, "show an episode of a trained policy, as a film or in the terminal", WATCH_HELP)
    watch.add_arguments(sub)

    translate.add_commands(add)

    sub = add("list", run_list, "list tasks, corpora, presets, engines, experiments, fields", LIST_HELP)
    sub.add_argument("what", nargs="?", choices=LISTS, help="list only these")

    sub = add("bench", bench.run, "measure speed and memory of all engines, side by side with peers", BENCH_HELP)
    bench.add_arguments(sub)

    sub = add("reproduce", reproduce.run, "run an experiment of the paper: table, verdicts, figure", REPRODUCE_HELP)
    reproduce.add_arguments(sub)

    sub = add("report", run_report, "write one page on all experiments, from their records", REPORT_HELP)
    sub.add_argument(
        "--out", type=Path, default=Path("report.html"), help="the page; its tables go beside it as .md (report.html)"
    )
    sub.add_argument("--scale", default="laptop", help="scale of the runs: smoke, laptop or paper (laptop)")
    sub.add_argument("--results", type=Path, help="folder of the records (results, or results/SCALE if not laptop)")

    sub = add("demo", run_demo, "train three small models on state tracking, in minutes", DEMO_HELP)
    sub.add_argument("--out", type=Path, default=Path("demo"), help="folder for runs and pictures (demo)")
    sub.add_argument("--preset", default="laptop", help="laptop, or smoke to check in seconds that it runs (laptop)")
    sub.add_argument("--jobs", type=positive_number, default=2, help="trainings to run at a time, each on one core (2)")
    sub.add_argument("--seed", type=seed_number, default=0, help="seed of the weights and the walks (0)")
    return parser


# ------------------------------------------------------------------------------------------------ commands


def run_train(options: argparse.Namespace) -> int:
    device = check_device(local_device(options.device))
    run, folder = run_to_train(options)
    title = f"{run.task_name} {run.model.core}"
    held = corpus_of(run)
    if held not in (None, run.task_name) and run.task_name not in ("text", "pairs") and not follows():
        print(f"note: this corpus is {held!r}; scores on it are not scores on {run.task_name}", file=sys.stderr)
    try:
        with terminal_reporter(title, options.quiet or follows()) as report:
            record = train(run, folder, report, resume=options.resume is not None, device=device)
    except StoppedError as stopped:
        print(f"{stopped}. To continue: feedback-transformer train --resume {folder}", file=sys.stderr)
        return INTERRUPTED
    if follows():
        return 0
    scores = ", ".join(show_score(name, value) for name, value in record["test"].items())
    for who, value in record.get("bounds", {}).items():
        scores += f", {show_score(run.task.metric, value).replace(run.task.metric, who)}"
    cost = f"{record['tokens']:,} {record.get('unit', 'tokens')}, {record['wall_seconds']:.0f} s"
    print(f"{title}: test {scores} ({cost}); the run is in {folder}")
    return 0


def run_to_train(options: argparse.Namespace) -> tuple[RunConfig, Path]:
    """The run that the options describe, and its folder."""
    words = [word for word in [options.task, *options.overrides] if word is not None]
    if options.resume is not None:
        folder = options.resume
        run = read_config(folder)
        if options.seed is not None and options.seed != run.seed:
            raise ConfigError(f"{folder} was started with --seed {run.seed}; leave out --seed to continue it")
        if options.out is not None:
            raise ConfigError(f"--resume continues in {folder} itself; leave out --out")
        names = [word for word in words if "=" not in word]
        if names and names[0] != run.task_name:
            raise ConfigError(f"{folder} is a run of {run.task_name}, not {names[0]}; leave out the task")
        assignments = parse_assignments(word for word in words if "=" in word)
        run = locate(run, folder, take_corpus(assignments))
        return run.override(assignments), folder
    if options.task is None:
        raise ConfigError(f"which task? choose one of {', '.join(TASKS)}, or continue a run with --resume FOLDER")
    run = configured(options.task, options.preset, options.seed or 0, parse_assignments(options.overrides))
    name = f"{run.task_name}-{run.model.core}-{options.preset}-{run.seed}"
    return run, options.out or Path("runs") / name


def run_evaluate(options: argparse.Namespace) -> int:
    device = check_device(options.device)
    assignments = parse_assignments(options.overrides)
    run, model = load_run(options.checkpoint, device, take_corpus(assignments))
    run = translate.tuned(run, options.checkpoint)
    changed = run.with_task(assignments)
    task, own = changed.task, run.task
    if (task.input_size, task.output_size) != (own.input_size, own.output_size):
        raise ConfigError(
            f"{options.checkpoint} has {own.input_size} input and {own.output_size} output symbols, this task "
            f"{task.input_size} and {task.output_size}; do not set fields that change them"
        )
    held_out = getattr(task, "held_out", lambda: task)()
    if isinstance(task, Translation | Language) and (options.episodes is not None or options.seed is not None):
        fewer = "; for fewer pairs set test_pairs=N" if isinstance(task, Translation) else ""
        raise ConfigError(f"--episodes and --seed are for tasks with random episodes, not for {run.task_name}{fewer}")
    if isinstance(task, Translation):
        return translate.evaluate(task, model, torch.device(device), f"{run.task_name} {run.model.core}", options.json)
    if assignments and held_out == getattr(own, "held_out", lambda: own)():
        raise ConfigError(f"{', '.join(assignments)} changes nothing: {run.task_name} is scored on {held_out}")
    count = options.episodes if options.episodes is not None else run.train.test_episodes
    if count < 1:
        raise ConfigError(f"--episodes = {count} must be 1 or more")
    seed = run.seed if options.seed is None else options.seed
    scores = score(model, changed, task.evaluation("test", count, seed), torch.device(device))
    if options.json:
        print(json.dumps(scores))
    else:
        print(f"{run.task_name} {run.model.core}: " + ", ".join(show_score(*item) for item in scores.items()))
    return 0


def run_generate(options: argparse.Namespace) -> int:
    device = check_device(options.device)
    for name in ("max_tokens", "samples"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} = {getattr(options, name)} must be 1 or more")
    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    assignments = parse_assignments(options.overrides)
    data = take_corpus(assignments)
    if assignments:
        raise ConfigError(f"{', '.join(assignments)} cannot be set for generate, only data=FOLDER")
    run, model = load_run(options.checkpoint, device, data)
    if not isinstance(run.task, Language):
        raise ConfigError(
            f"{options.checkpoint} was trained on {run.task_name}, which has no text to generate; choose a language "
            "model"
        )
    vocabulary = run.task.corpus.vocabulary
    tokens = first_tokens(run.task.corpus) if options.prompt is None else vocabulary.encode(options.prompt)
    prompt = torch.from_numpy(tokens.astype("int64")).to(device)
    random = torch.Generator(device).manual_seed(options.seed or 0)
    stream = itertools.islice(generate(model, prompt.expand(options.samples, -1), sampling, random), options.max_tokens)
    if options.samples == 1:
        for piece in text_pieces(vocabulary.decode, prompt.tolist(), (int(token) for token in stream)):
            print(piece, end="", flush=True)
        print()
        return 0
    for number, text in enumerate(torch.stack(list(stream), dim=1).tolist(), start=1):
        print(f"--- {number}\n{vocabulary.decode(prompt.tolist() + text)}")
    return 0


def first_tokens(corpus: Corpus) -> Tokens:
    """A new line, or where the vocabulary has none, the first token of the training text."""
    try:
        tokens = corpus.vocabulary.encode("\n")
    except DataError:
        return corpus.train[:1]
    return tokens if len(tokens) else corpus.train[:1]


def run_list(options: argparse.Namespace) -> int:
    console = Console()
    if options.what in (None, "tasks"):
        table = Table("task", "description", title="tasks", title_justify="left")
        for name, entry in TASKS.items():
            table.add_row(name, entry.summary)
        console.print(table)
    if options.what in (None, "presets"):
        table = Table("preset", "description", title="presets", title_justify="left")
        for name, summary in SCALES.items():
            table.add_row(name, summary)
        console.print(table)
    if options.what in (None, "corpora"):
        table = Table("corpus", "description", "licence", title="corpora, for `prepare`", title_justify="left")
        for corpora in (KNOWN, PAIR_CORPORA):
            for known in corpora.values():
                table.add_row(known.name, known.summary, known.licence)
        console.print(table)
    if options.what in (None, "engines"):
        table = Table("engine", "description", "covers", title="engines, preferred first", title_justify="left")
        for row in engines():
            covers = f"{row['compositions']}; device: {row['devices']}; {row['dtypes']}; auto: {row['auto']}"
            missing = "" if row["available"] == "yes" else f"; not available: {row['available']}"
            table.add_row(row["name"], row["summary"], covers + missing)
        console.print(table)
    if options.what in (None, "experiments"):
        table = Table("experiment", "description", "in the paper", title="experiments", title_justify="left")
        for experiment in EXPERIMENTS.values():
            table.add_row(experiment.name, experiment.title, experiment.place)
        table.add_row(reproduce.SPEED, "Speed of training and inference, measured by `bench`", "Table 5")
        for name, members in GROUPS.items():
            table.add_row(name, "all of them" if name == "all" else ", ".join(members), "-")
        console.print(table)
    if options.what == "fields":
        for kind in (ModelConfig, TrainConfig, ActConfig, *dict.fromkeys(type(entry.task) for entry in TASKS.values())):
            table = Table("field", "default", "meaning", title=kind.__name__, title_justify="left")
            inherited = {field.name for field in fields(TrainConfig)} if kind is ActConfig else set()
            for field in fields(kind):
                if field.name in inherited:
                    continue
                table.add_row(field.name, str(field.default), field.metadata.get("doc", ""))
            console.print(table)
        console.print(f"cores: {', '.join(CORES)}; memory compositions: {', '.join(COMPOSITIONS)}")
    return 0


def run_report(options: argparse.Namespace) -> int:
    results = reproduce.results_folder(options)
    tables = write_report(results, options.out, options.scale)
    if not any(results.glob("*/*-seed-*.json")):
        print(f"there is no record in {results} yet; `feedback-transformer reproduce NAME` makes them")
    print(f"wrote {options.out}, to open in a browser, and its tables as Markdown: {tables}")
    return 0


def run_demo(options: argparse.Namespace) -> int:
    from feedback_transformer.commands.demo import demo  # pictures are slow to import

    return demo(options.out, options.preset, options.jobs, options.seed)
