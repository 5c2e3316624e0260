"""The corpora that `prepare` knows by name: where they come from, and how to check that they are the right ones.

    ptb-char        Penn Treebank, character by character          5.0M training characters
    enwik8          the first 100 million bytes of Wikipedia        90M bytes
    wikitext-103    good Wikipedia articles, word by word          103M words
    wikitext-2      a small part of the same                         2M words
    text            your own files

Where known for certain, hashes are pinned: of an archive, of a file in it, or both. A file that does not match is
refused, because a score on other text is not a score on the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from feedback_transformer.config import nearest

SPLITS = ("train", "valid", "test")
TOKENS = ("characters", "bytes", "words", "bpe")


class DataError(ValueError):
    """Data that cannot be fetched, read or encoded; the message says which file, what is wrong, and the way out."""


@dataclass(frozen=True)
class Archive:
    """A file to download, from the first of its addresses that answers, and what is known about it."""

    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.urls[0]).name


@dataclass(frozen=True)
class Member:
    """A text file of a corpus: its name in the archive, and its size and hash where they are certain."""

    name: str
    size: int | None = None
    sha256: str | None = None

    @property
    def base(self) -> str:
        return PurePosixPath(self.name).name


@dataclass(frozen=True)
class Known:
    """A corpus with a name."""

    name: str
    summary: str
    licence: str
    tokens: str  # its usual kind of tokens
    archive: Archive | None = None
    members: dict[str, Member] | None = None  # split -> its file
    whole: Member | None = None  # or one file, split into three by `shares`
    shares: tuple[float, float, float] = (0.90, 0.05, 0.05)
    spaced: bool = False  # characters are separated by spaces, with `_` for a space in the text


def _wikitext(name: str, archive_sha256: str, summary: str, valid: Member, test: Member) -> Known:
    urls = ("https://wikitext.smerity.com", "https://s3.amazonaws.com/research.metamind.io/wikitext")
    return Known(
        name=name,
        summary=summary,
        licence="CC BY-SA 3.0",
        tokens="words",
        archive=Archive(tuple(f"{url}/{name}-v1.zip" for url in urls), sha256=archive_sha256),
        members={"train": Member(f"{name}/wiki.train.tokens"), "valid": valid, "test": test},
    )


KNOWN = {
    known.name: known
    for known in (
        Known(
            name="ptb-char",
            summary="Penn Treebank as characters (Mikolov): 50 symbols, 5.0M / 0.4M / 0.4M characters",
            licence="Penn Treebank, for research",
            tokens="characters",
            archive=Archive(
                ("http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",),
                size=34_869_662,
                md5="30177ea32e27c525793142b6bf2c8e2d",
            ),
            members={
                "train": Member(
                    "simple-examples/data/ptb.char.train.txt",
                    10_034_964,
                    "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
                ),
                "valid": Member(
                    "simple-examples/data/ptb.char.valid.txt",
                    786_084,
                    "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
                ),
                "test": Member(
                    "simple-examples/data/ptb.char.test.txt",
                    884_846,
                    "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
                ),
            },
            spaced=True,
        ),
        Known(
            name="enwik8",
            summary="the first 100,000,000 bytes of the English Wikipedia of 2006, cut 90M / 5M / 5M",
            licence="CC BY-SA 3.0",
            tokens="bytes",
            archive=Archive(
                ("http://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
                size=36_445_475,
                sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
            ),
            whole=Member("enwik8", 100_000_000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"),
        ),
        _wikitext(
            "wikitext-103",
            "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
            "good Wikipedia articles: 103M / 218K / 246K words, vocabulary 267,735",
            Member(
                "wikitext-103/wiki.valid.tokens",
                1_142_309,
                "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
            ),
            Member(
                "wikitext-103/wiki.test.tokens",
                1_281_077,
                "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
            ),
        ),
        _wikitext(
            "wikitext-2",
            "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
            "a small part of WikiText-103: 2.1M / 218K / 246K words, vocabulary 33,278",
            Member(
                "wikitext-2/wiki.valid.tokens",
                1_121_681,
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            Member(
                "wikitext-2/wiki.test.tokens",
                1_256_449,
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        ),
        Known(name="text", summary="your own: a file, a folder or an archive", licence="yours", tokens="characters"),
    )
}


def known_corpus(name: str) -> Known:
    """The corpus with this name, or an error with the nearest names."""
    if name not in KNOWN:
        raise DataError(f"there is no corpus {name!r}{nearest(name, KNOWN)}")
    return KNOWN[name]
