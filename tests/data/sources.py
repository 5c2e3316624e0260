"""Small texts and archives to prepare corpora from."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

from feedback_transformer.data.corpora import SPLITS
from feedback_transformer.data.corpus import Corpus

THREE = {"train": "the cat sat\non the mat\n", "valid": "the dog\n", "test": "a mat"}


def write_three(folder: Path, pattern: str = "{}.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in THREE.items():
        (folder / pattern.format(split)).write_text(text)
    return folder


def long_text(lines: int = 400) -> str:
    return "".join(f"line {n} — äöü\n" for n in range(lines))


def text_of(corpus: Corpus) -> str:
    return "".join(corpus.vocabulary.decode(corpus.split(split)) for split in SPLITS)


def archives(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """The same files as .zip, .tar.gz, .tgz and .tar.xz."""
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    made = [folder / "a.zip"]
    for suffix, mode in ((".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz")):
        with tarfile.open(folder / f"a{suffix}", mode) as tar:  # type: ignore[call-overload]
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        made.append(folder / f"a{suffix}")
    return made
