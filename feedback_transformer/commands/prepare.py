"""`feedback-transformer prepare`: a text to predict, or pairs to translate."""

from __future__ import annotations

import argparse
from pathlib import Path

from feedback_transformer.commands.command import Command
from feedback_transformer.config import nearest
from feedback_transformer.data.corpora import KNOWN, SPLITS, TOKENS, DataError, Known, known_corpus
from feedback_transformer.data.corpus import DESCRIPTION, Corpus
from feedback_transformer.data.pair_sources import PAIR_CORPORA, pair_corpus
from feedback_transformer.data.pairs import DESCRIPTION as PAIRS_DESCRIPTION
from feedback_transformer.data.pairs import Pairs
from feedback_transformer.data.prepare import BPE_SIZE, prepare
from feedback_transformer.data.prepare_pairs import left_out, prepare_pairs

HELP = """\
examples:
  feedback-transformer prepare ptb-char
  feedback-transformer prepare enwik8 --from downloads/enwik8.zip
  feedback-transformer prepare wikitext-103 --no-end-of-line --out data/wikitext-103-no-eos
  feedback-transformer prepare wikitext-2 --tokens bpe --vocab-size 8192
  feedback-transformer prepare text --from novels/ --tokens words --vocab-size 20000
  feedback-transformer prepare multi30k --from downloads/multi30k.tar.xz
  feedback-transformer prepare pairs --from talks.de talks.en --vocab-size 8000 --out data/talks

Without --from, a corpus is downloaded (an interrupted download is continued) and checked by size and hash. --from takes
a file, a folder or an archive (.zip, .tar.gz, .tar.xz, .xz). Your own text is split 90 / 5 / 5, unless it comes as
train.txt, valid.txt and test.txt. The result is a folder of memory-mapped tokens, either complete or absent.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("corpus", help=f"one of {', '.join(KNOWN)}, or pairs (below)")
    add("--from", dest="source", nargs="+", type=Path, metavar="PATH",
        help="a file, folder or archive instead of a download; for your own pairs, two files, SRC TGT")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER", help="folder of the result (data/CORPUS)")
    add("--tokens", metavar="KIND", help=f"{', '.join(TOKENS)} (the corpus's usual kind; your own text: characters)")
    add("--vocab-size", type=int, metavar="N", help=f"at most N words or BPE tokens (all words; {BPE_SIZE})")
    add(
        "--end-of-line",
        action=argparse.BooleanOptionalAction,
        help="whether the end of a line is a token (<eos> for words); by default it is",
    )
    add_pairs = parser.add_argument_group(f"pairs ({', '.join(PAIR_CORPORA)})").add_argument
    files = {"nargs": 2, "type": Path, "metavar": ("SRC", "TGT")}
    add_pairs("--valid", **files, help="your own validation pairs (the last 5%% of --from)")  # type: ignore[arg-type]
    add_pairs("--test", **files, help="your own test pairs (likewise)")  # type: ignore[arg-type]
    add_pairs("--max-length", type=int, metavar="N", help="train on pairs of at most N tokens per side (250)")
    add_pairs(
        "--source-words", type=int, metavar="N", help="cut sources to N words; 0: do not cut (cnn-dailymail: 400)"
    )
    add_pairs("--skip", default="", metavar="PATTERN", help="do not train on pairs that match this regular expression")
    add_pairs("--swap", action="store_true", help="translate in the other direction")


def run(options: argparse.Namespace) -> int:
    known = (*KNOWN, *PAIR_CORPORA)
    if options.corpus not in known:
        raise DataError(f"there is no corpus {options.corpus!r}{nearest(options.corpus, known)}")
    if options.corpus in PAIR_CORPORA:
        return run_pairs(options)
    for name in ("valid", "test", "max_length", "source_words", "swap", "skip"):
        if getattr(options, name):
            raise DataError(f"--{name.replace('_', '-')} is for pairs; leave it out, {options.corpus} is plain text")
    if options.source is not None and len(options.source) != 1:
        raise DataError(f"--from takes one file, folder or archive for {options.corpus}, not {len(options.source)}")
    return run_text(options, None if options.source is None else options.source[0])


def run_text(options: argparse.Namespace, source: Path | None) -> int:
    """Prepare the corpus and print a summary."""
    known = known_corpus(options.corpus)
    out = options.out or default_folder(known, options.tokens, source)
    new = not (out / DESCRIPTION).exists()
    corpus = prepare(options.corpus, out, source, options.tokens, options.vocab_size, options.end_of_line)
    print(text_summary(corpus) if new else f"{out} is there already: {text_summary(corpus)}")
    return 0


def default_folder(known: Known, tokens: str | None, source: Path | None) -> Path:
    """data/ptb-char, data/wikitext-2-bpe if the tokens are not the usual ones, data/novel for your own novel.txt."""
    name = known.name
    if known.archive is None and source is not None:
        name = source.resolve().name.partition(".")[0] or name
    return Path("data") / (name if tokens in (None, known.tokens) else f"{name}-{tokens}")


def text_summary(corpus: Corpus) -> str:
    """The corpus in a sentence."""
    about = corpus.description
    counts = " / ".join(f"{len(corpus.split(split)):,}" for split in SPLITS)
    unchecked = [split for split in SPLITS if not about["splits"][split]["checked"]]
    doubt = f"; not checked against a known hash: {', '.join(unchecked)}" if unchecked and corpus.name != "text" else ""
    return (
        f"{corpus.name}: {counts} {about['tokens']} to train, validate and test, vocabulary {corpus.vocabulary.size:,} "
        f"({about['dtype']}), licence: {about['licence']}{doubt}; the corpus is in {corpus.folder}"
    )


def run_pairs(options: argparse.Namespace) -> int:
    """Prepare the pairs and print a summary with what was left out."""
    if options.tokens is not None or options.end_of_line is not None:
        raise DataError("--tokens and --end-of-line are for corpora of plain text; pairs are always joint BPE")
    out = options.out or Path("data") / (options.corpus + ("-swapped" if options.swap else ""))
    new = not (out / PAIRS_DESCRIPTION).exists()
    pairs = prepare_pairs(
        options.corpus,
        out,
        options.source or (),
        options.valid or (),
        options.test or (),
        options.vocab_size,
        options.max_length,
        options.source_words,
        options.swap,
        options.skip,
    )
    print(pairs_summary(pairs) if new else f"{out} is there already: {pairs_summary(pairs)}")
    return 0


def pairs_summary(pairs: Pairs) -> str:
    """A summary of the pairs, in a few lines."""
    about = pairs.description
    counts = " / ".join(f"{len(pairs.split(split)):,}" for split in SPLITS)
    languages = " to ".join(about["languages"])
    lines = [
        f"{about['name']}, {languages}: {counts} pairs to train, validate and test, joint vocabulary "
        f"{pairs.vocabulary.size:,}, licence: {about['licence']}; the pairs are in {pairs.folder}"
    ]
    for split in SPLITS:
        if told := left_out(about["splits"][split]):
            lines.append(f"{split}: {told}{'' if split == 'train' else '; all kept, to be scored'}")
        if split in pair_corpus(about["name"]).hashes and not about["splits"][split].get("checked"):
            lines.append(
                f"{split}: not the published text of {about['name']}; a score on it is not one on {about['name']}"
            )
    return "\n".join(lines)


COMMANDS = (Command("prepare", "turn a corpus or your own text into tokens to train on", HELP, add_arguments, run),)
