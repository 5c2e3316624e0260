"""Pairs of a source and a target, such as a sentence and its translation: on disk, and in batches of similar length.

A prepared folder holds

    pairs.json           what it is: name, languages, options, counts of what was kept and left out, hashes, licence
    tokenizer.json       the joint vocabulary of both sides
    train.source.npy     the tokens of all sources end to end, each ended by END; likewise for targets and splits
    valid.jsonl          source and target as text, one pair per line, for scoring; likewise for test
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feedback_transformer.config import ConfigError
from feedback_transformer.data.corpora import SPLITS, DataError
from feedback_transformer.data.corpus import read_tokens
from feedback_transformer.data.description import Kind, read_description, require
from feedback_transformer.data.vocabulary import BPE, Tokens, load_vocabulary
from feedback_transformer.model.encoder_decoder import BEGIN, END, PAD
from feedback_transformer.model.language_model import NO_LABEL

Array = NDArray[np.int64]

FORMAT = 1
DESCRIPTION = "pairs.json"
PAIRS = Kind(DESCRIPTION, FORMAT, "pairs", "pairs")
COUNTED = ("sha256", "pairs", "source_tokens", "target_tokens")  # of every split, in its description
SPECIAL = END + 1  # PAD, BEGIN and END come first, then the tokenizer's own numbers
ROWS = 8  # training batches have a multiple of this many rows, so that processes and parts can share them


class JointBPE(BPE):
    """One byte-level BPE for both sides. Its numbers start at 3, so no text encodes to padding, begin or end."""

    kind = "joint-bpe"

    @classmethod
    def learn(cls, lines: Iterable[str], limit: int) -> JointBPE:
        """Learn at most `limit` tokens in total."""
        return cls(BPE.from_texts((_spaced(line) + "\n" for line in lines), limit - SPECIAL).tokenizer)

    @classmethod
    def load(cls, folder: Path) -> JointBPE:
        plain = load_vocabulary(folder, BPE.kind)
        assert isinstance(plain, BPE)
        return cls(plain.tokenizer)

    @property
    def size(self) -> int:
        return super().size + SPECIAL

    def encode_lines(self, lines: Sequence[str]) -> list[Array]:
        """Each line's tokens, followed by END."""
        every = self._encode([_spaced(line) for line in lines])
        return [np.array([*(number + SPECIAL for number in one.ids), END]) for one in every]

    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        for tokens in self.encode_lines(list(texts)):
            yield tokens[:-1].astype(self.dtype)

    def _text(self, numbers: NDArray[np.int64]) -> str:
        text = super()._text(numbers[numbers >= SPECIAL] - SPECIAL)
        return "\n".join(line.strip(" ") for line in text.split("\n"))


def _spaced(line: str) -> str:
    """Add a space before the first word, so that it is the same token as inside a sentence."""
    return f" {line}".replace("\n", "\n ")


@dataclass(frozen=True)
class Side:
    """Sentences end to end, each ended by END."""

    tokens: Tokens  # [n]

    @classmethod
    def join(cls, sentences: Sequence[Array]) -> Side:
        return cls(np.concatenate(sentences) if sentences else np.empty(0, np.int64))

    @cached_property
    def bounds(self) -> Array:
        """Where sentences begin, and where the last one ends: [sentences + 1]"""
        return np.concatenate([[0], np.flatnonzero(self.tokens == END) + 1])

    @property
    def lengths(self) -> Array:
        return np.diff(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Array:
        return self.tokens[self.bounds[index] : self.bounds[index + 1]].astype(np.int64)


@dataclass(frozen=True)
class PairSplit:
    """Sources, their targets, and their texts where those are kept (not for training)."""

    source: Side
    target: Side
    texts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        assert len(self.source) == len(self.target), "a source without a target"

    def __len__(self) -> int:
        return len(self.source)

    @property
    def longest(self) -> Array:
        """Tokens of the longer side of every pair."""
        return np.maximum(self.source.lengths, self.target.lengths)

    def first(self, count: int) -> PairSplit:
        """The first `count` pairs; all for 0."""
        if not 0 < count < len(self):
            return self
        source, target = (Side(side.tokens[: side.bounds[count]]) for side in (self.source, self.target))
        return PairSplit(source, target, self.texts[:count])

    def rows(self, indices: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Sources [B, S], the decoder's inputs [B, T] and its labels [B, T]."""
        pairs = [(self.source[i], self.target[i]) for i in map(int, indices)]
        read = [np.concatenate([[BEGIN], target[:-1]]) for _, target in pairs]
        return (
            pad([source for source, _ in pairs], PAD),
            pad(read, PAD),
            pad([target for _, target in pairs], NO_LABEL),
        )


def pad(rows: Sequence[Array], value: int) -> Tensor:
    """Rows of different lengths as one tensor, padded at the end."""
    padded = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for filled, row in zip(padded, rows, strict=True):
        filled[: len(row)] = row
    return torch.from_numpy(padded)


def batches_by_length(longest: Array, budget: int, random: np.random.Generator | None = None) -> list[Array]:
    """Batches of pairs of similar length, as indices; rows times the longest of them stays within `budget` tokens.

    With `random`, for training: pairs of the same length are grouped differently every time, batches come in random
    order, and each has a multiple of ROWS rows; the few pairs that do not fill ROWS are left out, different ones every
    time. Without it, for scoring: every pair once, the shortest first.
    """
    every = np.arange(len(longest)) if random is None else random.permutation(len(longest))
    multiple = 1 if random is None else ROWS
    every = every[: len(every) // multiple * multiple]
    if not len(every):
        raise DataError(f"{len(longest)} pairs are too few; training needs {multiple} or more")
    if random is not None and longest.max() * multiple > budget:
        raise ConfigError(
            f"TrainConfig.batch_tokens = {budget} does not hold {multiple} pairs of {longest.max()} tokens; raise it, "
            "or prepare the pairs with a smaller --max-length"
        )
    order = every[np.argsort(longest[every], kind="stable")]
    batches, start = [], 0
    while start < len(order):
        sizes = longest[order[start : start + budget]]
        padded = sizes * np.arange(1, len(sizes) + 1)
        rows = int(np.searchsorted(padded, budget, side="right")) // multiple * multiple
        batches.append(order[start : start + max(multiple, rows)])
        start += len(batches[-1])
    return batches if random is None else [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class PairBatches:
    """A pass over pairs for training; what is a step of a lane elsewhere is a batch here."""

    split: PairSplit
    batches: list[Array]
    longest_block: int = 1

    @property
    def steps(self) -> int:
        return len(self.batches)

    def block(self, start: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        assert steps == 1, "batches are of different shapes"
        return self.split.rows(self.batches[start])


@dataclass(frozen=True)
class Pairs:
    """A prepared folder, mapped into memory."""

    folder: Path
    description: dict[str, Any]
    vocabulary: JointBPE
    train: PairSplit
    valid: PairSplit
    test: PairSplit

    @classmethod
    def open(cls, folder: Path | str) -> Pairs:
        folder = Path(folder)
        description = read_description(folder, PAIRS)
        vocabulary = JointBPE.load(folder)
        try:
            require(description, ["vocabulary_size"], COUNTED)
            if vocabulary.size != description["vocabulary_size"]:
                raise DataError(
                    f"{folder / JointBPE.file} has {vocabulary.size} tokens but {DESCRIPTION} says "
                    f"{description['vocabulary_size']}; prepare the pairs again"
                )
            splits = {name: _read_split(folder, name, description, vocabulary) for name in SPLITS}
        except (KeyError, TypeError) as error:
            raise DataError(f"{folder / DESCRIPTION} is damaged (no {error}); prepare the pairs again") from None
        return cls(folder, description, vocabulary, **splits)

    def split(self, name: str) -> PairSplit:
        found: PairSplit = getattr(self, name)
        return found

    def fingerprints(self) -> dict[str, str]:
        """Hashes of the vocabulary and of the text, which do not depend on where the pairs are stored.

        The text's hash covers what was read and how many pairs were kept, which depends on the chosen maximum length.
        """
        told = self.description["splits"]
        text = "".join(str(told[split][part]) for split in SPLITS for part in COUNTED)
        tokenizer = self.vocabulary.tokenizer.to_str()
        return {
            name: sha256(of.encode()).hexdigest()[:16] for name, of in {"vocabulary": tokenizer, "text": text}.items()
        }


def _read_split(folder: Path, name: str, description: dict[str, Any], vocabulary: JointBPE) -> PairSplit:
    about = description["splits"][name]
    source, target = (
        Side(read_tokens(folder / f"{name}.{side}.npy", about[f"{side}_tokens"], vocabulary))
        for side in ("source", "target")
    )
    texts = () if name == "train" else tuple(_read_texts(folder / f"{name}.jsonl"))
    if not len(source) == len(target) == about["pairs"] or len(texts) != (0 if name == "train" else about["pairs"]):
        raise DataError(
            f"{folder} has {len(source):,} sources, {len(target):,} targets and {len(texts):,} texts for {name}, but "
            f"{DESCRIPTION} says {about['pairs']:,} pairs; prepare them again"
        )
    return PairSplit(source, target, texts)


def _read_texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            source, target = json.loads(line)
            yield source, target
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is missing or damaged ({error}); prepare the pairs again") from None
