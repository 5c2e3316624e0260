"""A prepared corpus: a folder with three memory-mapped arrays of tokens, and everything needed to read them.

corpus.json        what it is: name, tokens, options, counts, hashes of the source, licence
vocabulary.json    token -> text (tokenizer.json for BPE)
train.npy  valid.npy  test.npy     one number per token, in the smallest unsigned type that fits

corpus = Corpus.open(Path("data/ptb-char"))
corpus.train[:100]                       # nothing else is read from disk
corpus.vocabulary.decode(corpus.train[:100])
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from feedback_transformer.data.corpora import SPLITS, DataError
from feedback_transformer.data.description import Kind, read_description, require
from feedback_transformer.data.vocabulary import Tokens, Vocabulary, load_vocabulary

FORMAT = 1
DESCRIPTION = "corpus.json"
CORPUS = Kind(DESCRIPTION, FORMAT, "corpus", "a corpus")


@dataclass(frozen=True)
class Corpus:
    """Tokens for training, validation and testing, and their vocabulary."""

    folder: Path
    description: dict[str, Any]  # corpus.json
    vocabulary: Vocabulary
    train: Tokens
    valid: Tokens
    test: Tokens

    @property
    def name(self) -> str:
        return str(self.description["name"])

    def fingerprints(self) -> dict[str, str]:
        """Hashes of the vocabulary and of the text, which do not depend on where the corpus is stored."""
        text = "".join(str(self.description["splits"][split]["sha256"]) for split in SPLITS)
        return {"vocabulary": self.vocabulary.fingerprint, "text": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def bytes_per_token(self, name: str) -> float:
        """Bytes of text per token of a split, on average."""
        counts = self.description["splits"][name]
        return float(counts["bytes"] / counts["tokens"])

    def split(self, name: str) -> Tokens:
        """The tokens of `train`, `valid` or `test`."""
        if name not in SPLITS:
            raise DataError(f"there is no split {name!r}; choose one of {', '.join(SPLITS)}")
        tokens: Tokens = getattr(self, name)
        return tokens

    @classmethod
    def open(cls, folder: Path | str) -> Corpus:
        """Map the corpus of a folder into memory; every file is checked against corpus.json."""
        folder = Path(folder)
        description = read_description(folder, CORPUS)
        try:
            require(description, ["name", "vocabulary_size"], ["tokens", "bytes", "sha256"])
            vocabulary = load_vocabulary(folder, description["tokens"])
            if vocabulary.size != description["vocabulary_size"]:
                raise DataError(
                    f"{folder / vocabulary.file} has {vocabulary.size} tokens but corpus.json says "
                    f"{description['vocabulary_size']}; prepare the corpus again"
                )
            counts = {split: int(description["splits"][split]["tokens"]) for split in SPLITS}
        except (KeyError, TypeError) as error:
            raise DataError(f"{folder / DESCRIPTION} is damaged (no {error}); prepare the corpus again") from None
        arrays = {split: read_tokens(folder / f"{split}.npy", counts[split], vocabulary) for split in SPLITS}
        return cls(folder, description, vocabulary, **arrays)


def write_tokens(path: Path, arrays: Iterable[Tokens], dtype: np.dtype[Any]) -> int:
    """Write arrays end to end as one .npy file; returns the number of tokens.

    The count belongs in the header, before the numbers, but is known only at the end, so the header is written twice.
    numpy leaves room in it for a first axis of any length, so both have the same size.
    """
    count = 0
    with open(path, "wb") as file:
        _write_header(file, dtype, 0)
        start = file.tell()
        for array in arrays:
            file.write(np.ascontiguousarray(array, dtype).data)
            count += len(array)
        file.seek(0)
        _write_header(file, dtype, count)
        assert file.tell() == start
        file.flush()
        os.fsync(file.fileno())
    return count


def _write_header(file: Any, dtype: np.dtype[Any], count: int) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(file, header)


def read_tokens(path: Path, count: int, vocabulary: Vocabulary) -> Tokens:
    """The array as a memory map, checked for its length and type."""
    try:
        array: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"there is no {path}; prepare the corpus again") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); prepare the corpus again") from None
    if array.shape != (count,) or array.dtype != vocabulary.dtype:
        raise DataError(
            f"{path} holds {array.shape} of {array.dtype} but {DESCRIPTION} says {count:,} tokens of "
            f"{vocabulary.dtype}; prepare the corpus again"
        )
    return array
