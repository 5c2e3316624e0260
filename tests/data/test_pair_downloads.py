"""Pairs from the network, against a server on this machine; and files as the network has them."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from feedback_transformer.cli import main
from feedback_transformer.data import pair_sources
from feedback_transformer.data.corpora import SPLITS, Archive, DataError
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.data.prepare_pairs import prepare_pairs
from tests.data.test_pairs import write_pairs

NAMES = ("train", "val", "test_2016_flickr")


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def compress(folder: Path) -> list[Path]:
    """Small files of Multi30k as they are on the network."""
    made = []
    for name in NAMES:
        for path in write_pairs(folder, name=name):
            made.append(path.with_name(path.name + ".gz"))
            made[-1].write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return made


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server that has Multi30k, of which this version knows address, size and hash."""
    files = compress(tmp_path / "served")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(tmp_path / "served")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    archives = tuple(
        Archive((f"http://127.0.0.1:{server.server_port}/{file.name}",), file.stat().st_size,
                hashlib.sha256(file.read_bytes()).hexdigest())
        for file in files
    )  # fmt: skip
    monkeypatch.setitem(pair_sources.PAIR_CORPORA, "multi30k", replace(PAIR_CORPORA["multi30k"], archives=archives))
    yield tmp_path / "served"
    server.shutdown()
    server.server_close()


def test_pairs_are_downloaded_checked_and_kept_for_another_time(
    served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["prepare", "multi30k", "--vocab-size", "300", "--out", str(tmp_path / "data" / "multi30k")]
    assert main(command) == 0
    assert "60 / 60 / 60 pairs" in capsys.readouterr().out
    kept = sorted(path.name for path in (tmp_path / "data" / "downloads" / "multi30k").iterdir())
    assert kept == sorted(f"{name}.{language}.gz" for name in NAMES for language in ("en", "de"))
    for file in served.iterdir():
        file.unlink()
    assert main(command) == 0
    assert "is there already" in capsys.readouterr().out
    again = prepare_pairs("multi30k", tmp_path / "data" / "swapped", (), vocab_size=300, swap=True)
    assert again.description["languages"] == ["de", "en"], "made from what is kept"
    assert all(again.description["splits"][split]["checked"] for split in SPLITS)


def test_another_file_than_the_known_one_is_refused(served: Path, tmp_path: Path) -> None:
    (served / "val.de.gz").write_bytes(gzip.compress(b"wrong\n"))
    with pytest.raises(DataError, match=r"val\.de\.gz gave another file than the one this version knows"):
        prepare_pairs("multi30k", tmp_path / "data" / "multi30k", ())
    assert not (tmp_path / "data" / "multi30k").exists()


def test_compressed_files_in_a_folder_are_read_and_another_text_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compress(tmp_path / "multi")
    command = ["prepare", "multi30k", "--from", str(tmp_path / "multi"), "--vocab-size", "300"]
    assert main([*command, "--out", str(tmp_path / "data")]) == 0
    assert "test: not the published text of multi30k" in capsys.readouterr().out
    (tmp_path / "multi" / "val.en.gz").write_bytes(b"\x1f\x8b broken")
    assert main([*command, "--out", str(tmp_path / "other")]) == 2
    assert "val.en.gz is truncated or damaged" in capsys.readouterr().err


def test_newstest_is_read_as_it_was_published(tmp_path: Path) -> None:
    for name in ("europarl-v7.de-en", "commoncrawl.de-en", "newstest2013"):
        write_pairs(tmp_path / "wmt", name=name)
    lines = {"src.de": ["Müller &amp; Co .", "Zwei"], "ref.en": ["Müller &amp; Co.", "Two"], "src.en": ["never"] * 2}
    for name, texts in lines.items():
        segments = "".join(f'<seg id="{n}"> {text} </seg>\n' for n, text in enumerate(texts, 1))
        (tmp_path / "wmt" / f"newstest2014-deen-{name}.sgm").write_text(f"<doc>\n{segments}</doc>\n", encoding="utf-8")
    pairs = prepare_pairs("wmt14-ende", tmp_path / "data", [tmp_path / "wmt"], vocab_size=300)
    assert pairs.test.texts == (("Müller & Co.", "Müller & Co ."), ("Two", "Zwei"))
    assert len(pairs.train) == 120, "of all corpora that are there"


def test_pairs_that_match_a_pattern_are_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_pairs(tmp_path)
    lines = target.read_text(encoding="utf-8").split("\n")
    lines[5] = "<S_1> X"
    target.write_text("\n".join(lines), encoding="utf-8")
    command = ["prepare", "pairs", "--from", str(source), str(target), "--out", str(tmp_path / "data")]
    assert main([*command, "--vocab-size", "300", "--skip", "<S_[0-9]+>"]) == 0
    assert "train: of 54 pairs 1 that match --skip" in capsys.readouterr().out
    assert main([*command, "--vocab-size", "300"]) == 2
    assert "holds pairs with skip = <S_[0-9]+>, not " in capsys.readouterr().err
    assert main([*command, "--skip", "["]) == 2
    assert "--skip [ is not a regular expression" in capsys.readouterr().err
