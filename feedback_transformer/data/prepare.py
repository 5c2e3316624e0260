"""Turns a corpus into a folder of memory-mapped tokens.

    find the files    download, or --from a file, folder or archive; check sizes and hashes
    vocabulary        read the training text once and count
    encode            read each split once, block by block, straight into its .npy file

All of it happens in a folder beside the result, `.NAME.PID.part`, which is renamed when it is complete. So a corpus is
either complete or absent.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from feedback_transformer.config import nearest
from feedback_transformer.data.corpora import SPLITS, TOKENS, DataError, Known, known_corpus
from feedback_transformer.data.corpus import CORPUS, DESCRIPTION, FORMAT, Corpus, write_tokens
from feedback_transformer.data.description import there_already
from feedback_transformer.data.download import fetch, mismatch
from feedback_transformer.data.progress import byte_progress
from feedback_transformer.data.sources import Found, Piece, find_splits
from feedback_transformer.data.text import byte_blocks, text_blocks
from feedback_transformer.data.vocabulary import BPE, Bytes, Characters, Tokens, Vocabulary, Words

BPE_SIZE = 16_384
FEWEST = {"words": 3, "bpe": 256}


@dataclass(frozen=True)
class Options:
    """What determines the result, besides the text itself."""

    name: str
    tokens: str
    vocab_size: int | None
    end_of_line: bool

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tokens": self.tokens,
            "vocab_size": self.vocab_size,
            "end_of_line": self.end_of_line,
        }


def make_options(name: str, tokens: str | None, vocab_size: int | None, end_of_line: bool | None) -> Options:
    """The options, with defaults filled in and checked."""
    known = known_corpus(name)
    tokens = known.tokens if tokens is None else tokens
    if tokens not in TOKENS:
        raise DataError(f"--tokens {tokens} is not known{nearest(tokens, TOKENS)}")
    if vocab_size is None and tokens == "bpe":
        vocab_size = BPE_SIZE
    if vocab_size is not None:
        if tokens not in FEWEST:
            raise DataError(f"--vocab-size is for words and bpe; leave it out for {tokens}")
        if vocab_size < FEWEST[tokens]:
            raise DataError(f"--vocab-size {vocab_size} is too small for {tokens}; take {FEWEST[tokens]} or more")
    if end_of_line is False and tokens in ("bytes", "bpe"):
        raise DataError(f"--no-end-of-line is for words and characters; leave it out for {tokens}")
    return Options(name, tokens, vocab_size, end_of_line is not False)


def prepare(
    name: str,
    out: Path,
    source: Path | None = None,
    tokens: str | None = None,
    vocab_size: int | None = None,
    end_of_line: bool | None = None,
) -> Corpus:
    """Make the corpus `name` in the folder `out`, unless it is there already.

    Without `source` it is downloaded (to the folder `downloads` beside `out`, where it is kept).
    """
    known, options = known_corpus(name), make_options(name, tokens, vocab_size, end_of_line)
    if source is None and known.archive is None:
        raise DataError(f"`{name}` has no address to download from; say where it is with --from PATH")
    try:
        if there_already(out, CORPUS, options.described(), {}) and source is None:
            return Corpus.open(out)
        if source is None and known.archive is not None:
            source = fetch(known.archive, out.parent / "downloads")
        assert source is not None
        with complete_or_absent(out) as (folder, scratch):
            found = find_splits(known, source, scratch, options.tokens)
            if there_already(out, CORPUS, options.described(), found.hashes):
                return Corpus.open(out)
            build(known, options, found, whole_archive(known, source), folder, source.name)
    except OSError as error:
        raise DataError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from None
    return Corpus.open(out)


def whole_archive(known: Known, source: Path) -> bool:
    """Whether the source is exactly the archive that this version knows, so that all its files are right."""
    return known.archive is not None and source.is_file() and mismatch(source, known.archive) is None


@contextmanager
def complete_or_absent(out: Path, last: str = DESCRIPTION) -> Iterator[tuple[Path, Path]]:
    """A folder to build in and a scratch folder; the former becomes `out` if its last file was written."""
    building = out.parent / f".{out.name}.{os.getpid()}.part"
    scratch = out.parent / f".{out.name}.{os.getpid()}.scratch"
    try:
        for folder in (building, scratch):
            folder.mkdir(parents=True)
        yield building, scratch
        if (building / last).is_file():
            if out.is_dir():
                out.rmdir()  # it is empty, or `there_already` would have refused
            os.rename(building, out)
    finally:
        for folder in (building, scratch):
            shutil.rmtree(folder, ignore_errors=True)


def build(known: Known, options: Options, found: Found, whole: bool, folder: Path, source: str) -> None:
    """Write the vocabulary and arrays, then corpus.json as the last file."""
    vocabulary = make_vocabulary(known, options, found)
    vocabulary.save(folder)
    splits = {}
    for split in SPLITS:
        pieces = found.splits[split]
        count = write_tokens(folder / f"{split}.npy", encoded(vocabulary, pieces, known, split), vocabulary.dtype)
        splits[split] = {
            "tokens": count,
            "bytes": sum(map(len, byte_blocks(pieces, known.spaced))),
            "sha256": found.hashes[split],
            "checked": whole or found.checked[split],
        }
    description = {
        "format": FORMAT,
        **options.described(),
        "vocabulary_size": vocabulary.size,
        "dtype": str(vocabulary.dtype),
        "splits": splits,
        "source": source,
        "licence": known.licence,
    }
    write_last(folder / DESCRIPTION, description)


def make_vocabulary(known: Known, options: Options, found: Found) -> Vocabulary:
    """Words and BPE are learned from the training text; characters are all that occur in any split."""
    if options.tokens == "bytes":
        return Bytes()
    if options.tokens == "characters":
        every = chain.from_iterable(texts(found.splits[split], known, f"count {split}") for split in SPLITS)
        return Characters.from_texts(every, options.end_of_line)
    train = texts(found.splits["train"], known, "count train", whole_lines=options.tokens == "words")
    if options.tokens == "words":
        return Words.from_texts(train, options.end_of_line, options.vocab_size)
    assert options.vocab_size is not None
    return BPE.from_texts(train, options.vocab_size)


def texts(pieces: Sequence[Piece], known: Known, title: str, whole_lines: bool = False) -> Iterator[str]:
    """The text of a split, with progress; `whole_lines` ends the last line where the file does not."""
    text = "\n"
    with byte_progress(title) as report:
        for text in text_blocks(pieces, known.spaced, report):
            yield text
    if whole_lines and not text.endswith("\n"):
        yield "\n"


def encoded(vocabulary: Vocabulary, pieces: Sequence[Piece], known: Known, split: str) -> Iterator[Tokens]:
    """The tokens of a split, block by block."""
    title = f"encode {split}"
    if isinstance(vocabulary, Bytes):  # without decoding, so any file will do
        with byte_progress(title) as report:
            for block in byte_blocks(pieces, known.spaced, report):
                yield np.frombuffer(block, np.uint8)
    else:
        yield from vocabulary.encode_stream(texts(pieces, known, title, whole_lines=isinstance(vocabulary, Words)))


def write_last(path: Path, description: dict[str, Any]) -> None:
    """Write the file that marks the folder as complete; it is on disk when this returns."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(description, indent=1, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
