"""Where pairs come from: two text files side by side, or one of articles with their summaries.

A pair is a line of the source file and the same line of the target file, so files of different lengths are refused: one
missing line would make every pair behind it wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from feedback_transformer.config import nearest
from feedback_transformer.data.corpora import SPLITS, DataError
from feedback_transformer.data.sources import matching_files

Pair = tuple[str, str]
SENTENCE_END = "\n"  # between the sentences of a summary; a line has none inside, so it never comes from elsewhere
HELD_OUT, MOST_HELD_OUT = 0.05, 2000  # the part of own pairs that is kept to validate on, and again to test on


@dataclass(frozen=True)
class PairCorpus:
    """A corpus of pairs with a name. It is brought by hand (--from): no address is certain enough to be pinned."""

    name: str
    summary: str
    licence: str
    languages: tuple[str, str]  # source and target
    files: dict[str, str]  # split -> pattern of its files' names, less the ending
    place: str  # where people get it
    endings: tuple[str, ...] = ()  # of the names: the languages, or jsonl
    vocab_size: int = 32_000
    max_length: int = 250  # tokens; longer pairs are not trained on
    source_words: int = 0  # sources are cut to so many words; 0: not cut

    def wants(self, name: str) -> bool:
        return any(self.matches(split, name) for split in SPLITS)

    def matches(self, split: str, name: str) -> bool:
        endings = "|".join(self.endings or self.languages)
        return re.fullmatch(rf"({self.files[split]})\.({endings})", PurePosixPath(name).name) is not None


PAIR_CORPORA: dict[str, PairCorpus] = {
    corpus.name: corpus
    for corpus in (
        PairCorpus(
            "multi30k", "captions of pictures, English to German: 29,000 / 1,014 / 1,000 pairs", "CC BY-NC-SA 4.0",
            ("en", "de"), {"train": "train", "valid": "val", "test": "test_2016_flickr"},
            "github.com/multi30k/dataset (data/task1/raw)", vocab_size=4_000,
        ),
        PairCorpus(
            "iwslt14-deen", "talks, German to English, lower-cased and tokenised: 160,239 / 7,283 / 6,750 pairs",
            "CC BY-NC-ND", ("de", "en"), {"train": "train(_subset)?", "valid": "valid", "test": "test"},
            "wit3.fbk.eu, tokenised and split as is usual for it", vocab_size=10_000, max_length=175,
        ),
        PairCorpus(
            "wmt14-ende", "news and parliament, English to German: 4.5M / 3,000 (newstest2013) / 3,003 (newstest2014)",
            "Europarl with acknowledgement, newstest for research", ("en", "de"),
            {
                "train": r"train|europarl\.train\w*|(europarl|commoncrawl|news-commentary)[\w-]*\.de-en",
                "valid": "newstest2013", "test": "newstest2014",
            },
            "statmt.org/wmt14 and wmt16",
        ),
        PairCorpus(
            "cnn-dailymail", "news articles and their summaries: 287,113 / 13,368 / 11,490", "for research",
            ("en", "en"), {"train": r"train[.\w]*", "valid": r"val(id)?[.\w]*", "test": r"test[.\w]*"},
            "the non-anonymised corpus of See et al. 2017, a JSON line with `article` and `summary` each",
            endings=("jsonl",), max_length=1024, source_words=400,
        ),
        PairCorpus("pairs", "your own: two files, a line of one is the translation of the same line of the other",
                   "yours", ("source", "target"), {}, ""),
    )
}  # fmt: skip


def pair_corpus(name: str) -> PairCorpus:
    if name not in PAIR_CORPORA:
        raise DataError(f"there are no pairs {name!r}{nearest(name, PAIR_CORPORA)}")
    return PAIR_CORPORA[name]


Reading = Callable[[], Iterator[Pair]]  # read as often as one likes


def find_pairs(corpus: PairCorpus, place: Path, scratch: Path) -> dict[str, Reading]:
    """The splits of a known corpus in a folder or an archive."""
    files = matching_files(corpus.wants, place, scratch, f"has no files of {corpus.name}")
    return {split: _split_of(corpus, split, files, place) for split in SPLITS}


def _split_of(corpus: PairCorpus, split: str, files: dict[str, Path], place: Path) -> Reading:
    own = {name: path for name, path in files.items() if corpus.matches(split, name)}
    if not own:
        raise DataError(f"{place} has no {split} split of {corpus.name}: no file is called {corpus.files[split]}")
    if corpus.endings == ("jsonl",):
        return lambda: chain.from_iterable(read_articles(path, name) for name, path in sorted(own.items()))
    sides: list[list[tuple[str, Path]]] = []
    for language in corpus.languages:
        sides.append(sorted((name, path) for name, path in own.items() if name.endswith(f".{language}")))
    for source, target in zip(*sides, strict=False):
        if source[0].rpartition(".")[0] != target[0].rpartition(".")[0]:
            raise DataError(f"{source[0]} and {target[0]} do not go together; each file needs its other side")
        check_aligned(source[1], target[1], source[0], target[0])
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        names = ", ".join(sorted(own))
        raise DataError(
            f"{place} has {names} for {split}; each file needs its other side ({', '.join(corpus.languages)})"
        )
    return lambda: chain.from_iterable(
        zip(read_lines(source), read_lines(target), strict=True)
        for (_, source), (_, target) in zip(*sides, strict=True)
    )


def own_pairs(train: Sequence[Path], valid: Sequence[Path], test: Sequence[Path]) -> dict[str, Reading]:
    """Two files, of which the last pairs are kept to validate and to test on unless files for that are given."""
    readings, counts = {}, {}
    for split, files in {"train": train, "valid": valid, "test": test}.items():
        if not files:
            continue
        source, target = files
        for path in files:
            if not path.is_file():
                raise DataError(f"there is no file {path}")
        counts[split] = check_aligned(source, target, str(source), str(target))
        readings[split] = _stretch(source, target, 0, counts[split])
    total = counts["train"]
    held_out = min(MOST_HELD_OUT, int(total * HELD_OUT))
    end = total
    for split in ("test", "valid"):
        if split not in readings:
            if not held_out:
                raise DataError(f"{total} pairs are too few to keep some for {split}; give more, or --{split} SRC TGT")
            readings[split] = _stretch(train[0], train[1], end - held_out, end)
            end -= held_out
    readings["train"] = _stretch(train[0], train[1], 0, end)
    return readings


def _stretch(source: Path, target: Path, start: int, stop: int) -> Reading:
    return lambda: islice(zip(read_lines(source), read_lines(target), strict=True), start, stop)


def check_aligned(source: Path, target: Path, source_name: str, target_name: str) -> int:
    """How many lines both have; files that differ in it are refused."""
    counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise DataError(
            f"{source_name} has {counts[0]:,} lines and {target_name} has {counts[1]:,}: they are not aligned, and one "
            "missing line makes every pair behind it wrong; find it, or fetch the files again"
        )
    return counts[0]


def read_lines(path: Path) -> Iterator[str]:
    """Lines with single spaces between words. Only a newline ends a line, whatever else Unicode calls a line's end."""
    with open(path, encoding="utf-8", newline="\n") as file:
        try:
            for line in file:
                yield " ".join(line.removeprefix("\ufeff").split())
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 ({error.reason}); convert the file to UTF-8") from None


def read_articles(path: Path, name: str) -> Iterator[Pair]:
    """Articles and summaries; a summary is a list of sentences, or a text."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
                article, summary = entry["article"], entry["summary"]
                sentences = summary if isinstance(summary, list) else summary.split(SENTENCE_END)
                yield " ".join(article.split()), SENTENCE_END.join(" ".join(text.split()) for text in sentences)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{name}, line {number:,} is not a JSON object with `article` and `summary` ({error})"
                ) from None
