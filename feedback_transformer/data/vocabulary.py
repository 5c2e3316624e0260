"""From text to token numbers and back: bytes, characters, words or BPE.

Every vocabulary has the same interface:

    encode(text)          token numbers of a text
    decode(tokens)        the text of token numbers
    encode_stream(texts)  token numbers of a long text that comes in blocks, cut anywhere
    size                  V, how many tokens there are

`encode_stream` gives the same tokens as `encode` of the joined blocks, wherever they are cut; a corpus is encoded with
it, so that it is never in memory as a whole.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feedback_transformer.data.corpora import DataError

Tokens = NDArray[Any]  # unsigned integers, in the smallest type that fits

FORMAT = 1
UNKNOWN, END_OF_LINE = "<unk>", "<eos>"
LONGEST_LINE = 1 << 20  # characters; BPE cuts longer lines, so that memory stays bounded
CODE_POINTS = 0x110000
NEEDS_TOKENIZERS = (
    "BPE needs the library tokenizers; install it with: pip install tokenizers, or all that translation needs with: "
    "pip install 'feedback-transformer[translation]'"
)


class Vocabulary(ABC):
    """The tokens of a text and their numbers."""

    kind: str
    file = "vocabulary.json"

    @property
    @abstractmethod
    def size(self) -> int:
        """V, how many tokens there are."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every token."""
        return np.dtype(np.min_scalar_type(self.size - 1))

    def encode(self, text: str) -> Tokens:
        parts = list(self.encode_stream([text]))
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        numbers = np.asarray(tokens, dtype=np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.size:
            raise DataError(f"tokens {numbers.min()} to {numbers.max()} are not all in a vocabulary of {self.size}")
        return self._text(numbers)

    @abstractmethod
    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        """Tokens of the texts joined together."""

    @abstractmethod
    def _text(self, numbers: NDArray[np.int64]) -> str: ...

    @abstractmethod
    def _content(self) -> dict[str, Any]: ...

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of which token has which number; equal vocabularies have equal hashes."""
        content = json.dumps({"kind": self.kind, **self._content()}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        content = {"format": FORMAT, "kind": self.kind, **self._content()}
        (folder / self.file).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


class Bytes(Vocabulary):
    """The 256 bytes: covers any text and any file, nothing to learn.

    >>> Bytes().encode("né").tolist()
    [110, 195, 169]
    """

    kind = "bytes"
    size = 256

    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        for text in texts:
            yield np.frombuffer(_utf8(text), np.uint8)

    def _text(self, numbers: NDArray[np.int64]) -> str:
        return numbers.astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def _content(self) -> dict[str, Any]:
        return {}


class Characters(Vocabulary):
    """Unicode characters, in the order of their code points. An unknown character is an error.

    >>> letters = Characters.from_texts(["a cab"])
    >>> letters.encode("cab").tolist(), letters.decode([3, 1, 2])
    ([3, 1, 2], 'cab')
    """

    kind = "characters"

    def __init__(self, symbols: str, end_of_line: bool = True) -> None:
        self.symbols = symbols
        self.end_of_line = end_of_line
        self._codes = _code_points(symbols)
        self._numbers = np.full(CODE_POINTS, self.size, np.min_scalar_type(self.size))
        self._numbers[self._codes] = np.arange(self.size)

    @classmethod
    def from_texts(cls, texts: Iterable[str], end_of_line: bool = True) -> Characters:
        """Every character that occurs in the texts."""
        seen = np.zeros(CODE_POINTS, np.bool_)
        for text in texts:
            seen[_code_points(text if end_of_line else text.replace("\n", " "))] = True
        return cls("".join(map(chr, np.flatnonzero(seen).tolist())), end_of_line)

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        for text in texts:
            codes = _code_points(text if self.end_of_line else text.replace("\n", " "))
            numbers = self._numbers[codes]
            strange = np.flatnonzero(numbers == self.size)
            if len(strange):
                character = chr(int(codes[strange[0]]))
                raise DataError(
                    f"the character {character!r} (U+{ord(character):04X}) is not among the {self.size} of this "
                    "vocabulary; leave it out, or prepare the corpus with --tokens bytes, which takes any text"
                )
            yield numbers.astype(self.dtype, copy=False)

    def _text(self, numbers: NDArray[np.int64]) -> str:
        return self._codes[numbers].tobytes().decode("utf-32-le")

    def _content(self) -> dict[str, Any]:
        return {"end_of_line": self.end_of_line, "symbols": list(self.symbols)}


def _utf8(text: str) -> bytes:
    """As bytes; those that Python could not read in a command line come out as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _half(error) from None


def _half(error: UnicodeEncodeError) -> DataError:
    return DataError(f"the text has half a character at position {error.start}; give whole characters")


def _code_points(text: str) -> NDArray[np.uint32]:
    try:
        return np.frombuffer(text.encode("utf-32-le"), np.uint32)
    except UnicodeEncodeError as error:
        raise _half(error) from None


class Words(Vocabulary):
    """Words between white space, the most frequent first; those of equal count in alphabetical order.

    `<eos>` stands for the end of a line, unless line ends are dropped (`end_of_line=False`). Words outside the
    vocabulary are `<unk>`.

    >>> words = Words.from_texts(["the cat sat on\\nthe mat\\n"])
    >>> words.words
    ['<eos>', 'the', 'cat', 'mat', 'on', 'sat', '<unk>']
    >>> words.encode("the dog\\n").tolist(), words.decode([1, 2, 0, 1])
    ([1, 6, 0], 'the cat\\nthe')
    """

    kind = "words"

    def __init__(self, words: Sequence[str], end_of_line: bool = True) -> None:
        self.words = list(words)
        self.end_of_line = end_of_line
        self._numbers = _WithUnknown({word: number for number, word in enumerate(self.words)})

    @classmethod
    def from_texts(cls, texts: Iterable[str], end_of_line: bool = True, limit: int | None = None) -> Words:
        """The words of the texts, or the `limit` most frequent of them (counting `<unk>` and `<eos>`)."""
        counts: Counter[str] = Counter()
        for words in _split(texts, end_of_line):
            counts.update(words)
        special = [UNKNOWN, END_OF_LINE] if end_of_line else [UNKNOWN]
        ranked = sorted(sorted(counts.keys() - special), key=counts.__getitem__, reverse=True)  # a stable sort
        if limit is not None and len(ranked) + len(special) > limit:
            rare = ranked[limit - len(special) :]
            ranked = ranked[: limit - len(special)]
            counts[UNKNOWN] += sum(counts[word] for word in rare)
        for word in special:
            insort(ranked, word, key=lambda word: (-counts[word], word))
        return cls(ranked, end_of_line)

    @property
    def size(self) -> int:
        return len(self.words)

    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        for words in _split(texts, self.end_of_line):
            yield np.fromiter(map(self._numbers.__getitem__, words), self.dtype, count=len(words))

    def _text(self, numbers: NDArray[np.int64]) -> str:
        parts: list[str] = []
        for word in map(self.words.__getitem__, numbers.tolist()):
            ends = word == END_OF_LINE
            if parts and not ends and parts[-1] != "\n":
                parts.append(" ")
            parts.append("\n" if ends else word)
        return "".join(parts)

    def _content(self) -> dict[str, Any]:
        return {"end_of_line": self.end_of_line, "words": self.words}


class _WithUnknown(dict[str, int]):
    """A dictionary in which a missing word has the number of `<unk>`."""

    def __missing__(self, word: str) -> int:
        return self[UNKNOWN]


def _split(texts: Iterable[str], end_of_line: bool) -> Iterator[list[str]]:
    """Lists of words; a block is cut after its last white space, and the rest is added to the next one."""
    rest = ""
    for text in texts:
        text = rest + text
        cut = max(text.rfind(" "), text.rfind("\n")) + 1
        rest = text[cut:]
        yield _words(text[:cut], end_of_line)
    yield _words(rest, end_of_line)


def _words(text: str, end_of_line: bool) -> list[str]:
    return (text.replace("\n", f" {END_OF_LINE} ") if end_of_line else text).split()


class BPE(Vocabulary):
    """Byte-level byte-pair encoding (the library `tokenizers`), learned line by line from the training text."""

    kind = "bpe"
    file = "tokenizer.json"

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def from_texts(cls, texts: Iterable[str], limit: int) -> BPE:
        """Learn `limit` tokens: the 256 bytes, then the most frequent pairs."""
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(vocab_size=limit, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(_lines(texts), trainer=trainer)
        return cls(tokenizer)

    @property
    def size(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode_stream(self, texts: Iterable[str]) -> Iterator[Tokens]:
        for lines in _lines(texts):
            for encoding in self._encode(lines):
                yield np.asarray(encoding.ids, self.dtype)

    def _encode(self, lines: list[str]) -> list[Any]:
        try:
            encoded: list[Any] = self.tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        except TypeError:  # which is all that the library says of half a character
            _code_points("".join(lines))
            raise
        return encoded

    def _text(self, numbers: NDArray[np.int64]) -> str:
        return str(self.tokenizer.decode(numbers.tolist(), skip_special_tokens=False))

    def _content(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self.tokenizer.to_str())}

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / self.file))


def _lines(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of whole lines, each with its newline; lines beyond LONGEST_LINE are cut there."""
    rest = ""
    for text in texts:
        whole, newline, rest = (rest + text).rpartition("\n")
        lines = [line + "\n" for line in whole.split("\n")] if newline else []
        pieces = [line[at : at + LONGEST_LINE] for line in lines for at in range(0, len(line), LONGEST_LINE)]
        while len(rest) > LONGEST_LINE:
            pieces.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        if pieces:
            yield pieces
    if rest:
        yield [rest]


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise DataError(NEEDS_TOKENIZERS) from None
    return tokenizers


def load_vocabulary(folder: Path, kind: str) -> Vocabulary:
    """The vocabulary that `save` wrote."""
    path = folder / (BPE.file if kind == BPE.kind else Vocabulary.file)
    try:
        if kind == BPE.kind:
            return BPE(_tokenizers().Tokenizer.from_str(path.read_text(encoding="utf-8")))
        content = json.loads(path.read_text(encoding="utf-8"))
        return _from_content(path, content)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"there is no {path}; prepare the corpus again") from None
    except Exception as error:  # tokenizers raises bare exceptions
        raise DataError(f"{path} is damaged ({error}); prepare the corpus again") from None


def _from_content(path: Path, content: Mapping[str, Any]) -> Vocabulary:
    if content.get("format") != FORMAT:
        raise DataError(f"{path} has format {content.get('format')!r}; this version reads format {FORMAT}")
    if content["kind"] == Bytes.kind:
        return Bytes()
    if content["kind"] == Characters.kind:
        return Characters("".join(content["symbols"]), content["end_of_line"])
    return Words(content["words"], content["end_of_line"])
