"""Where pairs come from: two parallel text files, or one file of articles with their summaries.

A pair is a line of the source file and the same line of the target file, so files of different lengths are refused: one
missing line would make every later pair wrong. Files may be compressed (`.gz`), and newstest may be `.sgm`.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from feedback_transformer.config import nearest
from feedback_transformer.data.corpora import SPLITS, Archive, DataError
from feedback_transformer.data.sources import DAMAGED, matching_files

Pair = tuple[str, str]
SENTENCE_END = "\n"  # between the sentences of a summary; a line of text never contains one
HELD_OUT, MOST_HELD_OUT = 0.05, 2000  # the share of your own pairs kept for validation, and again for testing


@dataclass(frozen=True)
class PairCorpus:
    """A corpus of pairs with a name. Without archives, the user has to supply it (--from)."""

    name: str
    summary: str
    licence: str
    languages: tuple[str, str]  # source and target
    files: dict[str, str]  # split -> pattern of its files' names, without the ending
    place: str  # where to get it
    archives: tuple[Archive, ...] = ()  # the archives to download
    hashes: dict[str, str] = field(default_factory=dict)  # split -> sha256 of its published pairs, where known
    endings: tuple[str, ...] = ()  # of the names: the languages, or jsonl
    vocab_size: int = 32_000
    max_length: int = 250  # tokens; longer pairs are not trained on
    source_words: int = 0  # sources are cut to this many words; 0: not cut

    def wants(self, name: str) -> bool:
        return any(self.matches(split, name) for split in SPLITS)

    def matches(self, split: str, name: str) -> bool:
        endings = "|".join(self.endings or self.languages)
        return re.fullmatch(rf"({self.files[split]})\.({endings})", PurePosixPath(plain_name(name)).name) is not None


def plain_name(name: str) -> str:
    """The name of a file once it is plain text.

    >>> plain_name("train.en.gz"), plain_name("dev/newstest2014-deen-src.de.sgm")
    ('train.en', 'dev/newstest2014.de')
    """
    return re.sub(r"-deen-(src(?=\.de)|ref(?=\.en))(\.\w+)\.sgm$", r"\2", name.removesuffix(".gz"))


def _multi30k(name: str, sha256: str) -> Archive:
    commits = ("a3d2e0d26b56f3846f66a952536ffed4e401d05a", "master")
    url = "https://raw.githubusercontent.com/multi30k/dataset/{}/data/task1/raw/{}.gz"
    return Archive(tuple(url.format(commit, name) for commit in commits), sha256=sha256)


def _wmt(address: str, size: int, sha256: str) -> Archive:
    return Archive(tuple(f"{scheme}://{address}" for scheme in ("https", "http")), size, sha256)


# Hashes of files are those that public projects pin: for WMT, tensorflow/datasets (url_checksums).
# Hashes of pairs are our own, of the texts themselves: they identify the corpus, wherever it was downloaded.
MULTI30K_ARCHIVES = (
    _multi30k("train.en", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    _multi30k("train.de", "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    _multi30k("val.en", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    _multi30k("val.de", "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    _multi30k("test_2016_flickr.en", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    _multi30k("test_2016_flickr.de", "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
)
WMT_ARCHIVES = (
    _wmt("www.statmt.org/wmt13/training-parallel-europarl-v7.tgz", 657_632_379,
         "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
    _wmt("www.statmt.org/wmt13/training-parallel-commoncrawl.tgz", 918_311_367,
         "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
    _wmt("www.statmt.org/wmt14/training-parallel-nc-v9.tgz", 80_418_416,
         "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
    _wmt("data.statmt.org/wmt19/translation-task/dev.tgz", 38_654_961,
         "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"),
)  # fmt: skip


PAIR_CORPORA: dict[str, PairCorpus] = {
    corpus.name: corpus
    for corpus in (
        PairCorpus(
            "multi30k", "image captions, English to German: 29,000 / 1,014 / 1,000 pairs", "CC BY-NC-SA 4.0",
            ("en", "de"), {"train": "train", "valid": "val", "test": "test_2016_flickr"},
            "github.com/multi30k/dataset (data/task1/raw)", MULTI30K_ARCHIVES,
            {
                "train": "b5bacd05ee3f8cb4697af1c730f409bc6427340b7199e6f9bb6ab91cc28e1771",
                "valid": "d2865844d649455b487af3806f73d76dac38818b3fe483e4fdc99216961d5611",
                "test": "2e57372ff17cc1474d59eba1fa27d97fa32fba5e418c8b2a8a25df2d1167fdc3",
            },
            vocab_size=4_000,
        ),
        PairCorpus(
            "iwslt14-deen", "talks, German to English, lower-cased and tokenised: 160,239 / 7,283 / 6,750 pairs",
            "CC BY-NC-ND", ("de", "en"), {"train": "train(_subset)?", "valid": "valid", "test": "test"},
            "wit3.fbk.eu, tokenised, lower-cased and split by fairseq's prepare-iwslt14.sh", hashes={
                "valid": "93d2c55468e16584f244594aae66a6769e9884cc85f6f88714accc90c77b0175",
                "test": "06fea52f35694ccabd1499cd1d35e0f44732f9650f01df46558c021721cbcaa9",
            },
            vocab_size=10_000, max_length=175,
        ),
        PairCorpus(
            "wmt14-ende", "news and parliament, English to German: 4.5M / 3,000 (newstest2013) / 3,003 (newstest2014)",
            "Europarl with acknowledgement, newstest for research", ("en", "de"),
            {
                "train": r"train|europarl\.train\w*|(europarl|commoncrawl|news-commentary)[\w-]*\.de-en",
                "valid": "newstest2013", "test": "newstest2014",
            },
            "statmt.org/wmt14", WMT_ARCHIVES,
            {
                "valid": "5c628c44913e3cdf5950628289ba45bd22531e1868c220e638009bb466ef34b7",
                "test": "9d528ec5b9393dd80eddcd2ba6f79c65e335fb573fc0bc9eaa2904376eb09150",
            },
        ),
        PairCorpus(
            "cnn-dailymail", "news articles and their summaries: 287,113 / 13,368 / 11,490", "for research",
            ("en", "en"), {"train": r"train[.\w]*", "valid": r"val(id)?[.\w]*", "test": r"test[.\w]*"},
            "github.com/abisee/cnn-dailymail (See et al. 2017, tokenised, not anonymised); write it as train.jsonl, "
            "val.jsonl and test.jsonl, one JSON object with `article` and `summary` per line",
            endings=("jsonl",), max_length=1024, source_words=400,
        ),
        PairCorpus("pairs", "your own: two files, each line of one the translation of the same line of the other",
                   "yours", ("source", "target"), {}, ""),
    )
}  # fmt: skip


def pair_corpus(name: str) -> PairCorpus:
    if name not in PAIR_CORPORA:
        raise DataError(f"there is no corpus of pairs {name!r}{nearest(name, PAIR_CORPORA)}")
    return PAIR_CORPORA[name]


Reading = Callable[[], Iterator[Pair]]  # can be read any number of times


def find_pairs(corpus: PairCorpus, places: Sequence[Path], scratch: Path) -> dict[str, Reading]:
    """The splits of a known corpus in folders and archives."""
    files: dict[str, Path] = {}
    for number, place in enumerate(places):
        own = scratch / str(number)
        own.mkdir()
        found = matching_files(corpus.wants, place, own, f"has no files of {corpus.name}")
        for name, path in found.items():
            files.setdefault(plain_name(name), _plain_file(name, path, own / f"plain-{len(files)}.txt"))
    where = ", ".join(map(str, places))
    return {split: _split_of(corpus, split, files, where) for split in SPLITS}


def _plain_file(name: str, path: Path, plain: Path) -> Path:
    """The file itself if it is lines of text, else a copy that is."""
    if not name.removesuffix(".gz").endswith(".sgm"):
        return path
    segments = re.findall(r"<seg[^>]*>(.*?)</seg>", "\n".join(read_lines(path)), re.DOTALL)
    plain.write_text("".join(" ".join(html.unescape(text).split()) + "\n" for text in segments), encoding="utf-8")
    return plain


def _split_of(corpus: PairCorpus, split: str, files: dict[str, Path], place: str) -> Reading:
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
            raise DataError(
                f"{source[0]} and {target[0]} are not the two sides of the same pairs; each file needs its other side"
            )
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
    """Two files; the last pairs are kept for validation and testing, unless files for that are given."""
    readings, counts = {}, {}
    for split, files in {"train": train, "valid": valid, "test": test}.items():
        if not files:
            continue
        source, target = files
        for path in files:
            if not path.is_file():
                raise DataError(f"there is no file {path}; give the path of a text file")
        counts[split] = check_aligned(source, target, str(source), str(target))
        readings[split] = _stretch(source, target, 0, counts[split])
    total = counts["train"]
    held_out = min(MOST_HELD_OUT, int(total * HELD_OUT))
    end = total
    for split in ("test", "valid"):
        if split not in readings:
            if not held_out:
                raise DataError(
                    f"{total} pairs are too few to set some aside for {split}; give more, or --{split} SRC TGT"
                )
            readings[split] = _stretch(train[0], train[1], end - held_out, end)
            end -= held_out
    readings["train"] = _stretch(train[0], train[1], 0, end)
    return readings


def _stretch(source: Path, target: Path, start: int, stop: int) -> Reading:
    return lambda: islice(zip(read_lines(source), read_lines(target), strict=True), start, stop)


def check_aligned(source: Path, target: Path, source_name: str, target_name: str) -> int:
    """The number of lines, which must be the same in both files."""
    counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise DataError(
            f"{source_name} has {counts[0]:,} lines and {target_name} has {counts[1]:,}: they are not aligned, and one "
            "missing line makes every later pair wrong; find it, or fetch the files again"
        )
    return counts[0]


def read_lines(path: Path) -> Iterator[str]:
    """Lines with single spaces between words. Only a newline ends a line, not Unicode's other line breaks."""
    for line in _decoded(path, str(path)):
        yield " ".join(line.removeprefix("\ufeff").split())


def _decoded(path: Path, name: str) -> Iterator[str]:
    """The lines of a file, which may be compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 ({error.reason}); convert the file to UTF-8") from None
    except DAMAGED as error:
        raise DataError(f"{name} is truncated or damaged ({error}); fetch it again") from None


def read_articles(path: Path, name: str) -> Iterator[Pair]:
    """Articles and summaries; a summary is a list of sentences or a text."""
    for number, line in enumerate(_decoded(path, name), start=1):
        try:
            entry = json.loads(line)
            article, summary = entry["article"], entry["summary"]
            sentences = summary if isinstance(summary, list) else summary.split(SENTENCE_END)
            yield " ".join(article.split()), SENTENCE_END.join(" ".join(text.split()) for text in sentences)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{name}, line {number:,} is not a JSON object with `article` and `summary` ({error})"
            ) from None
