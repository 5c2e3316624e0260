"""`feedback-transformer prepare`: a text to predict, or pairs to translate."""

from __future__ import annotations

import argparse
from pathlib import Path

from feedback_transformer.config import nearest
from feedback_transformer.data import prepare, prepare_pairs
from feedback_transformer.data.corpora import KNOWN, DataError
from feedback_transformer.data.pair_sources import PAIR_CORPORA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    prepare.add_arguments(parser)
    add = parser.add_argument_group(f"pairs ({', '.join(PAIR_CORPORA)})").add_argument
    files = {"nargs": 2, "type": Path, "metavar": ("SRC", "TGT")}
    add("--valid", **files, help="your own validation pairs (the last 5%% of --from)")  # type: ignore[arg-type]
    add("--test", **files, help="your own test pairs (likewise)")  # type: ignore[arg-type]
    add("--max-length", type=int, metavar="N", help="train on pairs of at most N tokens per side (250)")
    add("--source-words", type=int, metavar="N", help="cut sources to N words; 0: do not cut (cnn-dailymail: 400)")
    add("--skip", default="", metavar="PATTERN", help="do not train on pairs that match this regular expression")
    add("--swap", action="store_true", help="translate in the other direction")


def run(options: argparse.Namespace) -> int:
    known = (*KNOWN, *PAIR_CORPORA)
    if options.corpus not in known:
        raise DataError(f"there is no corpus {options.corpus!r}{nearest(options.corpus, known)}")
    if options.corpus in PAIR_CORPORA:
        return prepare_pairs.run(options)
    for name in ("valid", "test", "max_length", "source_words", "swap", "skip"):
        if getattr(options, name):
            raise DataError(f"--{name.replace('_', '-')} is for pairs; leave it out, {options.corpus} is plain text")
    if options.source is not None and len(options.source) != 1:
        raise DataError(f"--from takes one file, folder or archive for {options.corpus}, not {len(options.source)}")
    options.source = None if options.source is None else options.source[0]
    return prepare.run(options)
