"""`feedback-transformer prepare` for pairs: a joint vocabulary from the training pairs, then each split in arrays.

Pairs that are not trained on are counted by reason and reported: those with an empty side, those that match --skip, and
those with more tokens than --max-length. For validation and testing every pair is kept, because a score on fewer would
be a different score.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from feedback_transformer.data.corpora import SPLITS, DataError
from feedback_transformer.data.corpus import write_tokens
from feedback_transformer.data.description import there_already
from feedback_transformer.data.download import fetch
from feedback_transformer.data.pair_sources import Pair, PairCorpus, Reading, find_pairs, own_pairs, pair_corpus
from feedback_transformer.data.pairs import DESCRIPTION, FORMAT, PAIRS, Array, JointBPE, Pairs
from feedback_transformer.data.prepare import complete_or_absent, write_last

CHUNK = 10_000  # pairs encoded at a time
SMALLEST_VOCABULARY = 260  # the bytes and the special symbols
LEFT_OUT = {"empty": "with an empty side", "skipped": "that match --skip", "too_long": "longer than --max-length"}


@dataclass(frozen=True)
class Options:
    """What determines the result, besides the text itself."""

    name: str
    languages: tuple[str, str]
    vocab_size: int
    max_length: int
    source_words: int
    skip: str = ""  # a regular expression; pairs with a match on either side are not trained on

    def __post_init__(self) -> None:
        try:
            re.compile(self.skip)
        except re.error as error:
            raise DataError(f"--skip {self.skip} is not a regular expression ({error})") from None
        for name, least in (("vocab_size", SMALLEST_VOCABULARY), ("max_length", 1), ("source_words", 0)):
            if getattr(self, name) < least:
                raise DataError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small; take {least} or more")

    def described(self) -> dict[str, Any]:
        return {**vars(self), "languages": list(self.languages)}


def prepare_pairs(
    name: str,
    out: Path,
    places: Sequence[Path],
    valid: Sequence[Path] = (),
    test: Sequence[Path] = (),
    vocab_size: int | None = None,
    max_length: int | None = None,
    source_words: int | None = None,
    swap: bool = False,
    skip: str = "",
) -> Pairs:
    """Make the pairs in the folder `out`, unless they are there already.

    Without `places` they are downloaded (to `downloads/NAME` beside `out`, where they are kept).
    """
    corpus = pair_corpus(name)
    languages = corpus.languages[::-1] if swap else corpus.languages
    vocab_size = corpus.vocab_size if vocab_size is None else vocab_size
    max_length = corpus.max_length if max_length is None else max_length
    source_words = corpus.source_words if source_words is None else source_words
    options = Options(name, languages, vocab_size, max_length, source_words, skip)
    if there_already(out, PAIRS, options.described(), {}) and not places:
        return Pairs.open(out)
    try:
        if downloaded := bool(corpus.archives and not (places or valid or test)):
            places = [fetch(archive, out.parent / "downloads" / name) for archive in corpus.archives]
        with complete_or_absent(out, DESCRIPTION) as (folder, scratch):
            readings = _readings(corpus, places, valid, test, scratch)
            hashes = {split: _hash(reading()) for split, reading in readings.items()}
            checked = {split: downloaded or hashes[split] == corpus.hashes.get(split) for split in SPLITS}
            if swap:
                readings = {split: _swapped(reading) for split, reading in readings.items()}
                hashes = {split: _hash(reading()) for split, reading in readings.items()}
            if there_already(out, PAIRS, options.described(), hashes):
                return Pairs.open(out)
            splits = {split: {"sha256": hashes[split], "checked": checked[split]} for split in SPLITS}
            build(corpus, options, readings, splits, folder)
    except OSError as error:
        raise DataError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from None
    return Pairs.open(out)


def _readings(
    corpus: PairCorpus, places: Sequence[Path], valid: Sequence[Path], test: Sequence[Path], scratch: Path
) -> dict[str, Reading]:
    if not corpus.files:
        if len(places) != 2:
            raise DataError(f"--from needs two files for `{corpus.name}`, sources and targets, not {len(places)}")
        return own_pairs(places, valid, test)
    if valid or test:
        raise DataError(f"--valid and --test are for your own `pairs`; {corpus.name} has its own splits")
    if not places:
        raise DataError(f"say where {corpus.name} is with --from FOLDER-OR-ARCHIVE; get it from {corpus.place}")
    return find_pairs(corpus, places, scratch)


def _swapped(reading: Reading) -> Reading:
    return lambda: ((target, source) for source, target in reading())


def _hash(pairs: Iterator[Pair]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update("\0".join([*pair, ""]).encode())
    return digest.hexdigest()


def build(
    corpus: PairCorpus, options: Options, readings: dict[str, Reading], known: dict[str, dict[str, Any]], folder: Path
) -> None:
    """Write the vocabulary and arrays, then pairs.json as the last file; `known` has each split's further entries."""
    pairs = _cut(readings["train"](), options.source_words, Counter())
    full = (pair for pair in pairs if all(pair) and not _skipped(pair, options))
    vocabulary = JointBPE.learn(chain.from_iterable(full), options.vocab_size)
    vocabulary.save(folder)
    splits = {}
    for split in SPLITS:
        splits[split] = {**write_split(folder, split, readings[split](), vocabulary, options), **known[split]}
        if not splits[split]["pairs"]:
            raise DataError(f"no pair is left for {split}: {left_out(splits[split])}")
    description = {
        "format": FORMAT,
        **options.described(),
        "vocabulary_size": vocabulary.size,
        "splits": splits,
        "licence": corpus.licence,
    }
    write_last(folder / DESCRIPTION, description)


def write_split(
    folder: Path, split: str, pairs: Iterator[Pair], vocabulary: JointBPE, options: Options
) -> dict[str, int]:
    """Write the arrays of a split, and its texts if it is scored; returns counts of what was kept and left out."""
    counts: Counter[str] = Counter(pairs=0, read=0, empty=0, skipped=0, too_long=0, cut=0)
    sides: tuple[list[Array], list[Array]] = (
        [],
        [],
    )  # one array per chunk: millions of small ones would not fit into memory
    texts: list[str] = []
    pairs = _cut(pairs, options.source_words, counts)
    while chunk := list(islice(pairs, CHUNK)):
        kept: list[tuple[Array, Array]] = []
        encoded = (vocabulary.encode_lines(side) for side in zip(*chunk, strict=True))
        for text, tokens in zip(chunk, zip(*encoded, strict=True), strict=True):
            reason = _reason(text, tokens, options)
            counts.update(["read", *([reason] if reason else [])])
            if split != "train" or reason is None:
                kept.append(tokens)
            if split != "train":
                texts.append(json.dumps(text, ensure_ascii=False) + "\n")
        counts["pairs"] += len(kept)
        for side, rows in zip(sides, zip(*kept, strict=True), strict=False):
            side.append(np.concatenate(rows).astype(vocabulary.dtype))
    for side, name in zip(sides, ("source", "target"), strict=True):
        counts[f"{name}_tokens"] = write_tokens(folder / f"{split}.{name}.npy", side, vocabulary.dtype)
    if split != "train":
        (folder / f"{split}.jsonl").write_text("".join(texts), encoding="utf-8")
    return dict(counts)


def _cut(pairs: Iterator[Pair], words: int, counts: Counter[str]) -> Iterator[Pair]:
    """The pairs with their sources cut to this many words."""
    for source, target in pairs:
        short = cut_words(source, words)
        counts["cut"] += short != source
        yield short, target


def cut_words(text: str, words: int) -> str:
    """The first `words` words; all for 0.

    >>> cut_words("one two three", 2)
    'one two'
    """
    return " ".join(text.split(" ", words)[:words]) if words else text


def _reason(text: Pair, tokens: tuple[Array, Array], options: Options) -> str | None:
    """Why a pair is not trained on."""
    if not all(text):
        return "empty"
    if _skipped(text, options):
        return "skipped"
    return "too_long" if max(map(len, tokens)) > options.max_length else None


def _skipped(text: Pair, options: Options) -> bool:
    return bool(options.skip) and any(re.search(options.skip, side) for side in text)


def left_out(counts: dict[str, Any]) -> str:
    """`of 29,000 pairs 3 with an empty side, 7 longer than --max-length`; empty if nothing was left out."""
    parts = [f"{counts[reason]:,} {words}" for reason, words in LEFT_OUT.items() if counts[reason]]
    if counts["cut"]:
        parts.append(f"{counts['cut']:,} with the source cut to --source-words")
    return f"of {counts['read']:,} pairs {', '.join(parts)}" if parts else ""
