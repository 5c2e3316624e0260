"""Copy and reverse (paper, section 4.1.1): write what was read, in order or backwards, at ten times the length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import ConfigError, at_least, check_types, documented, fractions
from feedback_transformer.data.episodes import NO_LABEL, Array, Episodes
from feedback_transformer.tasks.task import EpisodeTask, free_running_scores, generator

BEGIN, GO, END, NEXT = 10, 11, 12, 13  # after the ten digits
NEAR = 0.5  # of the parts are of the string just read, others of any
BEYOND = 16  # a part goes on for up to this many symbols after its cue
MORE = 9  # a cue has up to this many digits more than it needs


@dataclass(frozen=True)
class Copying(EpisodeTask):
    """The model reads digits, then writes them one by one until it writes `end`.

    Copying 3 1 4 (each label is below the token at which it is asked for):

        input    begin  3  1  4  go  3  1  4
        label      -    -  -  -   3  1  4  end

    and reversing it:

        input    begin  3  1  4  go  4  1  3
        label      -    -  -  -   4  1  3  end

    With `anywhere`, some answers begin at a digit in the middle, and are asked for from where what has been written so
    far occurs only once in the string. Then only the digits themselves tell the model where it is, and no count of them
    does, which would end with the training lengths:

        input    begin  3  1  3  4  5  go  3  4  5
        label      -    -  -  -  -  -   -  -  5  end

    With `cues`, some strings are answered in parts. A part begins at a random digit of any string since memory was last
    emptied, and is asked for after a cue: as many of its digits as occur nowhere else, and a few more. So an index of
    the digits does not tell the model where it is, because all strings have the same. Reversing 3 1 4 1 from the 4:

        input    begin  3  1  4  1  go  4  1
        label      -    -  -  -  -   -  1  3

    With `reread`, the digits of a cue are read once more before its part, after `next`:

        input    begin  3  1  4  1  next  1  4  go  4  1
        label      -    -  -  -  -   -    -  -   -  -  3

    With `misread`, some digits of the answers are read as random ones; what is asked for stays right. One neighbour
    that differs then says little, and a model has to look at more of them.

    With `chained`, strings after the first begin with `next` instead, and everything read and written before them stays
    in memory, so that more similar places have to be told apart. The first digit of a chained copy is not asked for,
    because nothing shows where to find it.

    With `later`, some strings of a chain are only read, and nothing is asked for until after the next. So it occurs
    that much has been read and nothing written yet, as in a test.

    `character` is the fraction of the answer's symbols that are right, `sequence` that of whole answers, both when the
    model reads its own output.
    """

    reverse: bool = documented(False, "write the digits backwards")
    length: int = documented(40, "digits in the longest training string")
    min_length: int = documented(0, "digits in the shortest training string; 0 means all have the same length")
    test_length: int = documented(400, "digits in the test strings")
    plain: float = documented(0.0, "the fraction of training strings made of only 2 to 5 different digits")
    anywhere: float = documented(0.0, "the fraction of training answers that begin at a random digit")
    chained: int = documented(1, "this many training strings in a row share a memory; then it is emptied")
    cues: float = documented(0.0, "the fraction of training strings of which only parts are asked for, after a cue")
    reread: bool = documented(False, "read the digits of a cue once more before its part")
    later: float = documented(0.0, "the fraction of chained training strings that are asked for only after the next")
    misread: float = documented(0.0, "the fraction of digits in training answers that are read as random ones")

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.min_length <= self.length or self.length < 1 or self.test_length < 1:
            raise ConfigError(
                f"Copying needs 0 <= min_length <= length, length >= 1 and test_length >= 1, not "
                f"min_length = {self.min_length}, length = {self.length}, test_length = {self.test_length}"
            )
        fractions(self, "plain", "anywhere", "cues", "later", "misread")
        at_least(self, 1, "chained")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*"0123456789", "begin", "go", "end", "next")

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def metric(self) -> str:
        return "character"

    @property
    def begin(self) -> int:
        return BEGIN

    def episodes(self, count: int, seed: int) -> Episodes:
        strings = self.strings(count, seed)
        starts = self.starts(strings, seed)
        random = np.random.default_rng([seed, 2])  # apart from the strings and the starts
        made, unasked = [], 0
        for number, digits in enumerate(strings):
            first = number - number % self.chained
            unasked = len(digits) + (unasked if number > first else 0)
            tokens, labels = self.reading(digits, number > first)
            if (number + 1) % self.chained == 0 or random.random() >= self.later:
                if random.random() < self.cues:
                    written, asked = self.in_parts(strings[first : number + 1], unasked, random)
                else:
                    written, asked = self.whole(digits, number > first, starts[number])
                written = misread(written, self.misread, random) if self.misread else written
                tokens, labels, unasked = np.append(tokens, written), np.append(labels, asked), 0
            made.append((tokens, labels))
        return Episodes.join(*zip(*made, strict=True))

    def strings(self, count: int, seed: int) -> list[Array]:
        """The digits to be read in each of `count` episodes."""
        random = generator(seed)
        lengths = random.integers(self.min_length or self.length, self.length + 1, size=count)
        digits = random.integers(0, 10, size=int(lengths.sum()))
        if self.plain:
            digits = few_digits(digits, lengths, self.plain, random)
        return np.split(digits, np.cumsum(lengths)[:-1])

    def starts(self, strings: list[Array], seed: int) -> Array:
        """Where each answer begins: how many digits of the whole answer it leaves out."""
        random = np.random.default_rng([seed, 1])  # apart from the strings
        lengths = np.array([len(digits) for digits in strings])
        return np.where(random.random(len(strings)) < self.anywhere, random.integers(0, lengths), 0)

    def reading(self, digits: Array, chained: bool = False) -> tuple[Array, Array]:
        """Tokens and labels while the digits are read."""
        return np.append(NEXT if chained else BEGIN, digits), np.full(1 + len(digits), NO_LABEL)

    def whole(self, digits: Array, chained: bool = False, start: int = 0) -> tuple[Array, Array]:
        """Tokens and labels of the answer, which leaves out its first `start` digits."""
        every = digits[::-1] if self.reverse else digits
        unknown = shown(every, start) if start else int(chained and not self.reverse)
        return answered(np.append(every[start:], END), unknown)

    def in_parts(self, strings: list[Array], left: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Tokens and labels of parts of answers to any of these strings, of `left` symbols or a few more."""
        parts: list[tuple[Array, Array]] = []
        while left > 0:
            string = strings[-1] if random.random() < NEAR else strings[random.integers(len(strings))]
            start, stop = place(string, strings, random)
            answer = np.append(string[:stop][::-1] if self.reverse else string[start:], END)
            answer = answer[: stop - start + random.integers(1, BEYOND + 1)]
            again = np.append(NEXT, string[start:stop]) if self.reread else np.array([], np.int64)
            tokens, labels = answered(answer, stop - start)
            parts.append((np.append(again, tokens), np.append(np.full(len(again), NO_LABEL), labels)))
            left -= len(answer)
        tokens, labels = map(np.concatenate, zip(*parts, strict=True))
        return tokens, labels

    def held_out(self) -> Copying:
        whole = replace(self, length=self.test_length, min_length=0, chained=1)
        return replace(whole, plain=0.0, anywhere=0.0, cues=0.0, reread=False, later=0.0, misread=0.0)

    def score(self, model: nn.Module, episodes: Episodes, device: torch.device) -> dict[str, float]:
        return free_running_scores(model, episodes, device)


def answered(answer: Array, unknown: int) -> tuple[Array, Array]:
    """Tokens and labels of an answer whose first `unknown` symbols are not asked for."""
    return np.append(GO, answer[:-1]), np.where(np.arange(len(answer)) < unknown, NO_LABEL, answer)


def shown(digits: Array, start: int) -> int:
    """How many digits from `start` on it takes until they occur only there, at most all of them and the end."""
    text = bytes(digits.tolist())
    for end in range(start + 1, len(text) + 1):
        if once(text[start:end], text):
            return end - start
    return len(text) - start + 1


def place(string: Array, strings: list[Array], random: np.random.Generator) -> tuple[int, int]:
    """A random place in `string`, of as many digits as it takes until they occur in none of the strings once more (but
    for those at the beginning, if all of them do), and up to MORE digits before them."""
    text, read = bytes(string.tolist()), bytes([NEXT]).join(bytes(digits.tolist()) for digits in strings)
    stop = int(random.integers(1, len(text) + 1))
    start = stop - 1
    while start and not once(text[start:stop], read):
        start -= 1
    return max(0, start - int(random.integers(MORE + 1))), stop


def misread(tokens: Array, part: float, random: np.random.Generator) -> Array:
    """The same with a fraction of the digits replaced by random ones."""
    wrong = (tokens < BEGIN) & (random.random(len(tokens)) < part)
    return np.where(wrong, random.integers(0, 10, size=len(tokens)), tokens)


def once(part: bytes, text: bytes) -> bool:
    return text.find(part) == text.rfind(part)


def few_digits(digits: Array, lengths: Array, part: float, random: np.random.Generator) -> Array:
    """Rewrite a fraction of the strings with only 2 to 5 different digits. One or two neighbours then no longer
    identify a position, so a model has to look at more of them, as it must in a long string."""
    count = len(lengths)
    names = random.random((count, 10)).argsort(axis=1)  # a different order of the digits for every string
    kinds = np.where(random.random(count) < part, random.integers(2, 6, size=count), 10)
    string = np.repeat(np.arange(count), lengths)
    return names[string, digits % kinds[string]]
