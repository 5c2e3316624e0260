"""Downloads, against a server on this machine that also truncates, corrupts, stalls and refuses."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedback_transformer.data.corpora import Archive, DataError
from feedback_transformer.data.download import download, fetch

CONTENT = np.random.default_rng(0).integers(0, 256, 3_000_000).astype(np.uint8).tobytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does; `requests` are the ranges it was asked for."""

    content: bytes = CONTENT
    ranges: bool = True
    truncate: list[int] = field(default_factory=list)  # bytes to send in this and the following answers
    stall: list[float] = field(default_factory=list)  # seconds of silence in the middle of an answer
    status: list[int] = field(default_factory=list)  # error codes to begin with
    wrong_range: bool = False
    tell_length: bool = True
    requests: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        mind, asked = self.behaviour, self.headers.get("Range")
        mind.requests.append(asked)
        if mind.status:
            self.send_error(mind.status.pop(0))
            return
        start = 0
        if asked and mind.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(mind.content):
                self.send_error(416)
                return
            told = 0 if mind.wrong_range else start
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {told}-{len(mind.content) - 1}/{len(mind.content)}")
        else:
            self.send_response(200)
        body = mind.content[start:]
        if mind.tell_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send_body(body)

    def send_body(self, body: bytes) -> None:
        mind = self.behaviour
        if mind.truncate:
            body = body[: mind.truncate.pop(0)]
        try:
            self.wfile.write(body[: len(body) // 2])
            if mind.stall:
                self.wfile.flush()
                time.sleep(mind.stall.pop(0))
            self.wfile.write(body[len(body) // 2 :])
        except OSError:
            pass  # the client has had enough


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Behaviour, str]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    behaviour = Behaviour()
    handler = type("BoundHandler", (Handler,), {"behaviour": behaviour})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield behaviour, f"http://127.0.0.1:{http.server_port}/file.zip"
    http.shutdown()
    http.server_close()


def get(url: str, target: Path, **options: Any) -> Path:
    """Without waiting between attempts."""
    archive = options.pop("archive", Archive((url,), size=len(CONTENT), sha256=SHA256))
    return download(archive, target, wait=lambda seconds: None, timeout=options.pop("timeout", 10.0), **options)


Server = tuple[Behaviour, str]


def test_a_download_is_the_file_and_nothing_else_stays(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = get(server[1], tmp_path / "file.zip", report=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert [file.name for file in tmp_path.iterdir()] == ["file.zip"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_truncated_answer_is_gone_on_with_where_it_ended(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.truncate = [1_000_000, 500_000]
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    assert behaviour.requests == [None, "bytes=1000000-", "bytes=1500000-"]


def test_an_answer_without_length_is_known_to_be_short_by_the_size(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.tell_length, behaviour.truncate = False, [1_000_000]
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    assert behaviour.requests == [None, "bytes=1000000-"]


def test_a_later_run_goes_on_with_the_part_of_an_earlier_one(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.truncate = [1_000_000]
    with pytest.raises(DataError, match="1,000,000 of 3,000,000 bytes"):
        get(url, tmp_path / "file.zip", attempts=1)
    assert not (tmp_path / "file.zip").exists()
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    assert behaviour.requests == [None, "bytes=1000000-"]


def test_a_server_without_ranges_sends_it_all_again(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.ranges, behaviour.truncate = False, [1_000_000]
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    assert behaviour.requests == [None, "bytes=1000000-"]


def test_a_server_that_answers_with_another_range_is_not_believed(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.wrong_range, behaviour.truncate = True, [1_000_000]
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    assert behaviour.requests == [None, "bytes=1000000-", None]


def test_a_part_of_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(b"x" * 1000)
    assert get(server[1], tmp_path / "file.zip").read_bytes() == CONTENT
    assert server[0].requests == ["bytes=1000-", None]


def test_a_part_longer_than_the_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT + b"x")
    assert get(server[1], tmp_path / "file.zip").read_bytes() == CONTENT


def test_a_whole_part_only_takes_its_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    assert get(server[1], tmp_path / "file.zip").read_bytes() == CONTENT
    assert len(server[0].requests) == 1


def test_a_stalled_connection_is_given_up_and_gone_on_with(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.stall = [3.0]
    began = time.monotonic()
    assert get(url, tmp_path / "file.zip", timeout=0.3).read_bytes() == CONTENT
    assert time.monotonic() - began < 2.5
    assert behaviour.requests[1] is not None


def test_corrupt_content_is_refused_and_not_kept(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(DataError, match=r"gave another file .*sha256 .*--from PATH"):
        get(url, tmp_path / "file.zip")
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_size_is_refused(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.content = CONTENT + b"more"
    with pytest.raises(DataError, match="3,000,004 bytes, not 3,000,000"):
        get(url, tmp_path / "file.zip")
    behaviour.tell_length = False
    with pytest.raises(DataError, match="3,000,004 bytes, not 3,000,000"):
        get(url, tmp_path / "file.zip")
    assert not list(tmp_path.iterdir())


def test_md5_is_checked_where_only_md5_is_known(server: Server, tmp_path: Path) -> None:
    good = Archive((server[1],), md5=hashlib.md5(CONTENT).hexdigest())
    assert get(server[1], tmp_path / "file.zip", archive=good).read_bytes() == CONTENT
    with pytest.raises(DataError, match="md5"):
        get(server[1], tmp_path / "other.zip", archive=Archive((server[1],), md5="0" * 32))


def test_not_found_is_a_sentence_and_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.status = [404] * 9
    with pytest.raises(DataError, match=r"404 Not Found; download it by hand and give it with --from PATH"):
        get(url, tmp_path / "file.zip")
    assert len(behaviour.requests) == 1


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.status = [503, 500]
    assert get(url, tmp_path / "file.zip").read_bytes() == CONTENT
    behaviour.status = [503] * 9
    with pytest.raises(DataError, match=r"in 4 attempts .*503"):
        get(url, tmp_path / "another.zip")


def test_the_next_address_is_tried_when_one_fails(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    behaviour.status = [404]
    archive = Archive((url, url), size=len(CONTENT), sha256=SHA256)
    assert get(url, tmp_path / "file.zip", archive=archive).read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/file.zip", "http://host.invalid/file.zip"])
def test_an_unreachable_host_is_a_sentence_with_the_way_out(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"reach.*download it by hand and give it with --from PATH"):
        get(url, tmp_path / "file.zip")


def test_waits_grow_between_attempts(server: Server, tmp_path: Path) -> None:
    server[0].status = [503] * 9
    waits: list[float] = []
    with pytest.raises(DataError):
        download(Archive((server[1],)), tmp_path / "file.zip", wait=waits.append)
    assert waits == [1.0, 2.0, 4.0]


def test_a_file_that_is_there_is_not_fetched_again_unless_it_is_damaged(server: Server, tmp_path: Path) -> None:
    behaviour, url = server
    archive = Archive((url,), sha256=SHA256)
    for _ in range(2):
        assert fetch(archive, tmp_path / "downloads").read_bytes() == CONTENT
    assert len(behaviour.requests) == 1
    (tmp_path / "downloads" / "file.zip").write_bytes(b"damaged")
    assert fetch(archive, tmp_path / "downloads").read_bytes() == CONTENT
