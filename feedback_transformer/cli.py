"""The command `feedback-transformer`: the commands of `commands/`, and how their errors are told."""

from __future__ import annotations

import argparse
import errno
import io
import itertools
import sys
from collections.abc import Callable, Sequence

import torch

from feedback_transformer import __version__
from feedback_transformer.commands import (
    bench,
    demo,
    evaluate,
    generate,
    listing,
    prepare,
    report,
    reproduce,
    train,
    translate,
    watch,
)
from feedback_transformer.commands.command import BAD_INPUT
from feedback_transformer.config import ConfigError
from feedback_transformer.data.corpora import DataError
from feedback_transformer.experiments.running import FAILED, INTERRUPTED
from feedback_transformer.training.checkpoint import CheckpointError
from feedback_transformer.training.stopping import DivergedError

MODULES = (train, evaluate, prepare, generate, watch, translate, listing, bench, reproduce, report, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake ends in one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is no reason to stop
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
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return complain(f"cannot write the output ({error.strerror})", FAILED)


def understand(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments (`command` is the function to call), or exit with code 2."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    strange = [word for word in rest if word.startswith("-") or "overrides" not in options]
    if strange:
        fields = "; a field is set with field=value, for example steps=10" if "overrides" in options else ""
        parser.error(f"unrecognized arguments: {' '.join(strange)}{fields}")
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
    for command in itertools.chain.from_iterable(module.COMMANDS for module in MODULES):
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=command.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(command=command.run)
    return parser
