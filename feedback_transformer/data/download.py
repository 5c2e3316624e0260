"""Fetch a file over HTTP so that it is complete and correct, or absent.

The bytes go to `NAME.part`. When the connection breaks, the next attempt asks for the rest (`Range: bytes=N-`), in this
run or a later one; a server that cannot do that sends the file from the beginning. Only a file with the right size and
hash gets its final name.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feedback_transformer.data.corpora import Archive, DataError
from feedback_transformer.data.progress import Report, byte_progress, silent

CHUNK = 1 << 20
RETRYABLE = (408, 425, 429, 500, 502, 503, 504)
BY_HAND = "download it by hand and give it with --from PATH"


class _AddressError(DataError):
    """Retrying this address is useless; another address might work."""


class _BrokenOffError(Exception):
    """The connection ended early; what has arrived is kept."""


def fetch(archive: Archive, folder: Path) -> Path:
    """The archive's file in `folder`, downloaded unless it is there already, with progress on the terminal."""
    target = folder / archive.name
    if target.is_file() and mismatch(target, archive) is None:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with byte_progress(f"download {archive.name}") as report:
        return download(archive, target, report)


def download(
    archive: Archive,
    target: Path,
    report: Report = silent,
    *,
    timeout: float = 30.0,
    attempts: int = 4,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch `archive` to `target`: address by address, a few attempts each, continuing where the last broke off."""
    part = target.with_name(target.name + ".part")
    said: list[str] = []
    for url in archive.urls:
        try:
            _download_from(url, archive, part, report, timeout, attempts, wait)
            os.replace(part, target)
            return target
        except _AddressError as error:
            said.append(str(error))
    raise DataError(f"{'; '.join(said)}; {BY_HAND}")


def _download_from(
    url: str,
    archive: Archive,
    part: Path,
    report: Report,
    timeout: float,
    attempts: int,
    wait: Callable[[float], None],
) -> None:
    """Leave the complete, correct file at `part`, or raise."""
    trouble = ""
    for attempt in range(attempts):
        if attempt:
            wait(2.0 ** (attempt - 1))
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _transfer(url, archive, part, report, timeout)
        except _BrokenOffError as error:
            trouble = str(error)
            continue
        wrong = mismatch(part, archive)
        if wrong is None:
            return
        part.unlink()  # wrong bytes cannot be continued
        if not resumed:
            raise _AddressError(f"{url} gave another file than the one this version knows ({wrong})")
        trouble = f"the partial download here did not match ({wrong})"
    raise _AddressError(f"{url} could not be fetched in {attempts} attempts ({trouble})")


def _transfer(url: str, archive: Archive, part: Path, report: Report, timeout: float) -> None:
    """One connection: from where `part` ends to the end of the file."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "feedback-transformer", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
            resuming = response.status == 206 and _range_start(response) == have
            if response.status == 206 and not resuming:
                part.unlink()
                raise _BrokenOffError("the server answered with another range than the one asked for")
            _receive(response, part, have if resuming else 0, archive.size, report)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing follows what is here: it is complete, or not this file
            if mismatch(part, archive) is not None:
                part.unlink()
                raise _BrokenOffError("the partial download here did not match") from None
        elif error.code in RETRYABLE:
            raise _BrokenOffError(f"the server answered {error.code} {error.reason}") from None
        else:
            raise _AddressError(f"{url} is not available: the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.gaierror):
            raise _AddressError(f"{url} cannot be reached: its host name does not resolve ({error.reason})") from None
        raise _BrokenOffError(f"cannot reach the host: {error.reason}") from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from None


def _range_start(response: Any) -> int:
    """`Content-Range: bytes 500-999/1000` -> 500; -1 if it is missing."""
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else -1


def _receive(response: Any, part: Path, start: int, size: int | None, report: Report) -> None:
    """Write what follows the first `start` bytes of `part`, and check that nothing is missing."""
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdigit() else size
    if total is not None and size is not None and total != size:
        raise _AddressError(
            f"{response.url} gave another file than the one this version knows ({total:,} bytes, not {size:,})"
        )
    with open(part, "ab" if start else "wb") as file:
        done = start
        while block := response.read(CHUNK):
            file.write(block)
            done += len(block)
            report(done, total)
            if size is not None and done > size:
                return  # more than the file has: `mismatch` says so
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done < total:
        raise _BrokenOffError(f"the connection ended after {done:,} of {total:,} bytes")


def mismatch(path: Path, archive: Archive) -> str | None:
    """What is wrong with a downloaded file, or None."""
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        return f"{size:,} bytes, not {archive.size:,}"
    for kind in ("sha256", "md5"):
        expected = getattr(archive, kind)
        if expected is not None and (found := file_hash(path, kind)) != expected:
            return f"{kind} {found}, not {expected}"
    return None


def file_hash(path: Path, kind: str = "sha256") -> str:
    """The hash of a file, read in blocks."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
