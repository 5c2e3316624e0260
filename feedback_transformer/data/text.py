"""Pieces of files as a stream of text, block by block: decoding, and the layout of the character Penn Treebank."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence

from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.progress import Report, silent
from feedback_transformer.data.sources import Piece

BYTE_ORDER_MARK = "\ufeff"


def byte_blocks(pieces: Sequence[Piece], spaced: bool = False, report: Report = silent) -> Iterator[bytes]:
    """The bytes of a split.

    `spaced` undoes the layout of the character Penn Treebank, where `n o _ w a y` stands for `no way`.
    """
    total, done = sum(len(piece) for piece in pieces), 0
    for piece in pieces:
        for block in piece.blocks():
            done += len(block)
            report(done, total)
            yield block.replace(b" ", b"").replace(b"_", b" ") if spaced else block


def text_blocks(pieces: Sequence[Piece], spaced: bool = False, report: Report = silent) -> Iterator[str]:
    """The characters of a split; bytes that are not UTF-8 raise an error that says where they are."""
    total, done = sum(len(piece) for piece in pieces), 0
    for piece in pieces:
        for text, used in _decoded(piece):
            done += used
            report(done, total)
            yield text.replace(" ", "").replace("_", " ") if spaced else text


def _decoded(piece: Piece) -> Iterator[tuple[str, int]]:
    """Blocks of text, and how many bytes each was decoded from."""
    position = piece.start  # in the file, of the first byte of `block`
    rest = b""
    for block in piece.blocks():
        block = rest + block
        text, used = _decode(block, position, piece, final=False)
        rest, first = block[used:], position == 0
        position += used
        yield (text.removeprefix(BYTE_ORDER_MARK) if first else text), used
    _decode(rest, position, piece, final=True)


def _decode(block: bytes, position: int, piece: Piece, final: bool) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(block, "strict", final)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{piece.label} is not UTF-8: byte 0x{block[error.start]:02x} at position {position + error.start:,}; "
            "convert the file to UTF-8, or take it as it is with --tokens bytes"
        ) from None
