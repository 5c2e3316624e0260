"""Finds the bytes of train, valid and test in a file, a folder or an archive.

A split is a list of pieces, a piece is a range of a file on disk, and nothing is read before it is needed. Members of
an archive are first unpacked to a scratch folder under names of our own, so nothing in an archive can choose where it
is written; an archive that tries to (`/etc/passwd`, `../../home`) is refused as a whole.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from feedback_transformer.data.corpora import SPLITS, DataError, Known, Member

CHUNK = 1 << 22
WINDOW = 1 << 16  # how far after a cut to look for the end of a line or word
ALIASES = {"train": ("train", "training"), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
TEXT_SUFFIXES = (".txt", ".tokens", ".text", ".raw")
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
# A RuntimeError is an archive with a password, or with a compression that Python does not know.
DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, RuntimeError,
    UnicodeDecodeError,
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a file, followed by `end` (the newline that the file itself may lack)."""

    path: Path
    start: int
    stop: int
    label: str  # the file's name for messages
    end: bytes = b""

    def __len__(self) -> int:
        return self.stop - self.start + len(self.end)

    def blocks(self, size: int = CHUNK) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            file.seek(self.start)
            left = self.stop - self.start
            while left:
                block = file.read(min(size, left))
                if not block:
                    raise DataError(f"{self.label} became shorter while it was being read; try again")
                left -= len(block)
                yield block
        if self.end:
            yield self.end

    @classmethod
    def whole(cls, path: Path, label: str | None = None) -> Piece:
        """A whole file; an empty one is refused."""
        size = path.stat().st_size
        if size == 0:
            raise DataError(f"{label or path} is empty; give a file with text")
        return cls(path, 0, size, label or str(path))


Pieces = tuple[Piece, ...]


@dataclass(frozen=True)
class Found:
    """The three splits, with the sha256 of each and whether that hash was expected."""

    splits: dict[str, Pieces]
    hashes: dict[str, str]
    checked: dict[str, bool]


def find_splits(known: Known, path: Path, scratch: Path, tokens: str) -> Found:
    """The splits of a corpus in a local file, folder or archive."""
    files = local_files(known, path, scratch)
    if known.members is not None:
        return _three_files(known, _named(known, files, path))
    if known.whole is not None:
        label, file = _one_file(known.whole, files, path)
        piece = Piece.whole(file, label)
        digest = sha256((piece,))
        check(known.whole, piece, digest, known.name)
        return _cut((piece,), known.shares, tokens, checked=True)
    named = _by_split_name(files, path) if len(files) > 1 else {}
    if named:
        return _three_files(known, named)
    return _cut(_joined(files, path), known.shares, tokens, checked=False)


def _three_files(known: Known, files: Mapping[str, tuple[str, Path]]) -> Found:
    members = known.members or {}
    splits: dict[str, Pieces] = {}
    hashes: dict[str, str] = {}
    checked: dict[str, bool] = {}
    for split in SPLITS:
        label, file = files[split]
        piece = Piece.whole(file, label)
        splits[split], hashes[split] = (piece,), sha256((piece,))
        checked[split] = split in members and members[split].sha256 is not None
        if split in members:
            check(members[split], piece, hashes[split], known.name)
    return Found(splits, hashes, checked)


def check(member: Member, piece: Piece, digest: str, name: str) -> None:
    """Raise an error if the file is not the expected one."""
    way_out = f"fetch it again, or prepare it as your own with `text --from`, since it is not the corpus {name}"
    if member.size is not None and len(piece) != member.size:
        raise DataError(f"{piece.label} has {len(piece):,} bytes and {member.base} has {member.size:,}; {way_out}")
    if member.sha256 is not None and digest != member.sha256:
        raise DataError(f"{piece.label} has sha256 {digest} and {member.base} has {member.sha256}; {way_out}")


def sha256(pieces: Sequence[Piece]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        for block in piece.blocks():
            digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------------------------- which file is which split


def _named(known: Known, files: Mapping[str, Path], path: Path) -> dict[str, tuple[str, Path]]:
    """The three files of a known corpus: by their own names, else by the names of the splits."""
    members = known.members or {}
    exact = {}
    for split, member in members.items():
        matches = [name for name in files if PurePosixPath(name).name == member.base]
        if len(matches) == 1:
            exact[split] = (matches[0], files[matches[0]])
    if len(exact) == len(SPLITS):
        return exact
    names = ", ".join(member.base for member in members.values())
    if path.is_file() and len(files) == 1:
        raise DataError(f"{path} is one file, and {known.name} needs three ({names}); give the folder that holds them")
    found = exact or _by_split_name(files, path)
    for split in SPLITS:
        if split not in found:
            raise DataError(f"{path} has no {split} split; {known.name} needs {names}")
    return found


def _by_split_name(files: Mapping[str, Path], path: Path) -> dict[str, tuple[str, Path]]:
    """Files whose names end in train, valid or test; empty when there is no train file."""
    found: dict[str, tuple[str, Path]] = {}
    named = {name: split for name in sorted(files) if (split := split_of(name)) is not None}
    if "train" not in named.values():
        return {}
    for name, split in named.items():
        if split in found:
            raise DataError(
                f"{path} has two files for {split}, {found[split][0]} and {name}; keep only one of them there"
            )
        found[split] = (name, files[name])
    for split in SPLITS:
        if split not in found:
            raise DataError(f"{path} has {found['train'][0]} but no {split} split; add {split}.txt, or give one file")
    return found


def split_of(name: str) -> str | None:
    """The split that a file name indicates.

    >>> split_of("wiki.valid.tokens"), split_of("data/dev.txt"), split_of("trainspotting.txt")
    ('valid', 'valid', None)
    """
    base = PurePosixPath(name).name.lower()
    for suffix in TEXT_SUFFIXES:
        base = base.removesuffix(suffix)
    last = re.split(r"[._-]", base)[-1]
    return next((split for split, words in ALIASES.items() if last in words), None)


def _one_file(whole: Member, files: Mapping[str, Path], path: Path) -> tuple[str, Path]:
    if len(files) == 1:
        return next(iter(files.items()))
    matches = [name for name in files if PurePosixPath(name).name in (whole.base, f"{whole.base}.txt")]
    if len(matches) != 1:
        raise DataError(f"{path} does not hold one file {whole.base}; give that file itself")
    return matches[0], files[matches[0]]


def _joined(files: Mapping[str, Path], path: Path) -> Pieces:
    """All text files in sorted order, each ended by a newline."""
    names = sorted(files) if len(files) == 1 else sorted(name for name in files if name.endswith(TEXT_SUFFIXES))
    if not names:
        raise DataError(f"{path} holds no text; give a file, or a folder with .txt files")
    pieces = [Piece.whole(files[name], name) for name in names]
    last = len(pieces) - 1
    return tuple(piece if i == last else _closed(piece) for i, piece in enumerate(pieces))


def _closed(piece: Piece) -> Piece:
    with open(piece.path, "rb") as file:
        file.seek(piece.stop - 1)
        end = b"" if file.read(1) == b"\n" else b"\n"
    return Piece(piece.path, piece.start, piece.stop, piece.label, end)


# ------------------------------------------------------------------------------------------- cutting in three


def _cut(pieces: Pieces, shares: tuple[float, float, float], tokens: str, checked: bool) -> Found:
    """Cut the text into train, valid and test, in this order."""
    total = sum(len(piece) for piece in pieces)
    first = boundary(pieces, round(total * shares[0]), tokens)
    second = boundary(pieces, round(total * (shares[0] + shares[1])), tokens)
    if not 0 < first < second < total:
        raise DataError(
            f"{pieces[0].label} has {total:,} bytes, too few to be split into train, valid and test; give more text"
        )
    bounds = {"train": (0, first), "valid": (first, second), "test": (second, total)}
    splits = {split: stretch(pieces, *bounds[split]) for split in SPLITS}
    return Found(splits, {split: sha256(splits[split]) for split in SPLITS}, dict.fromkeys(SPLITS, checked))


def boundary(pieces: Sequence[Piece], position: int, tokens: str) -> int:
    """The first place at or after `position` where no token is cut in two.

    Bytes can be cut anywhere, characters only between their UTF-8 encodings; words and BPE are cut at the end of a
    line, or of a word where lines are very long.
    """
    if tokens == "bytes":
        return position
    before = max(position - 1, 0)  # a line that ends just there need not be followed by another
    near = b"".join(block for piece in stretch(pieces, before, position + WINDOW) for block in piece.blocks())
    if tokens in ("words", "bpe"):
        for mark in (b"\n", b" "):
            if mark in near:
                return before + near.index(mark) + 1
    inside = position - before
    while inside < len(near) and near[inside] & 0xC0 == 0x80:
        inside += 1
    return before + inside


def stretch(pieces: Sequence[Piece], start: int, stop: int) -> Pieces:
    """The pieces of bytes `start` to `stop` of all pieces end to end."""
    chosen = []
    for piece in pieces:
        own = piece.stop - piece.start
        low, high = max(start, 0), min(stop, len(piece))
        if low < high:
            begin, end = piece.start + min(low, own), piece.start + min(high, own)
            chosen.append(Piece(piece.path, begin, end, piece.label, piece.end if high > own else b""))
        start, stop = start - len(piece), stop - len(piece)
    return tuple(chosen)


# --------------------------------------------------------------------------------- files, folders, archives


def local_files(known: Known, path: Path, scratch: Path) -> dict[str, Path]:
    """Name -> file on disk, for everything in a file, folder or archive that could be text of this corpus."""
    lack = "holds no text; give a file, or a folder with .txt files"
    if known.members is not None:
        lack = f"holds no file of {known.name}; give its archive, or a folder with its train, valid and test files"
    return matching_files(lambda name: wanted(known, name), path, scratch, lack)


def matching_files(wanted: Callable[[str], bool], path: Path, scratch: Path, lack: str) -> dict[str, Path]:
    """Name -> file on disk, for everything in a folder or archive whose name is wanted; a single file always is."""
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith("."))
        found = {str(file): file for file in files if wanted(file.name)}
        if not found:
            raise DataError(f"{path} {lack}")
        return found
    if not path.is_file():
        raise DataError(f"there is no file or folder {path}; check --from")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty; give a file with text")
    try:
        return unpack(wanted, path, scratch)
    except DAMAGED as error:
        raise DataError(f"{path} is truncated or damaged ({error}); fetch it again") from None


def wanted(known: Known, name: str) -> bool:
    """Whether a file in a folder or an archive could belong to the corpus."""
    base = PurePosixPath(name).name
    if known.whole is not None and base == known.whole.base:
        return True
    if known.members is not None:
        return split_of(base) is not None
    return base.endswith(TEXT_SUFFIXES) or base in ALIASES


def unpack(wanted: Callable[[str], bool], path: Path, scratch: Path) -> dict[str, Path]:
    """The members of an archive as files in `scratch`; a file that is not an archive is returned as it is."""
    name = path.name.lower()
    if name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            safe(path, archive.namelist())
            chosen = [info.filename for info in archive.infolist() if not info.is_dir() and wanted(info.filename)]
            return {f"{path}/{member}": _write(archive.open(member), scratch, i) for i, member in enumerate(chosen)}
    if name.endswith(TAR_SUFFIXES):
        found: dict[str, Path] = {}
        with tarfile.open(path) as tar:
            for entry in tar:  # in the archive's order: looking members up by name would unpack it again for each
                safe(path, [entry.name])
                if entry.isfile() and wanted(entry.name) and (stream := tar.extractfile(entry)):
                    found[f"{path}/{entry.name}"] = _write(stream, scratch, len(found))
        return found
    if name.endswith(".xz"):
        return {str(path): _write(lzma.open(path), scratch, 0)}
    if name.endswith(".gz"):
        return {str(path): _write(gzip.open(path), scratch, 0)}
    return {str(path): path}


def safe(path: Path, names: Sequence[str]) -> None:
    """Raise an error if a member of the archive points outside the folder it is unpacked to."""
    for name in names:
        plain = name.replace("\\", "/")
        if plain.startswith("/") or ".." in plain.split("/") or re.match(r"[A-Za-z]:", plain):
            raise DataError(f"{path} has a member {name!r} that points outside the archive; do not trust this file")


def _write(stream: IO[bytes] | lzma.LZMAFile | gzip.GzipFile, scratch: Path, number: int) -> Path:
    target = scratch / f"member-{number}"
    with stream, open(target, "wb") as file:
        while block := stream.read(CHUNK):
            file.write(block)
    return target
