"""The commands of the documents, run one after the other as they stand there, with smoke presets for laptop ones.

Changed are only size and place: corpora and captions are made up instead of downloaded, `steps=` is left out, `bench`
and `reproduce` are told to be quick. What needs a GPU or a vocabulary of 200,000 words is left out.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from feedback_transformer import presets
from feedback_transformer.cli import main, understand
from feedback_transformer.data.corpora import KNOWN
from feedback_transformer.data.pair_sources import PAIR_CORPORA
from feedback_transformer.training.run import RunConfig
from tests.data.test_pairs import write_pairs

ROOT = Path(__file__).resolve().parent.parent
NAME = "feedback-transformer"
LINE = "It was the meaning of a quick brown fox that jumps over the lazy dog.\n"
LEFT_OUT = ("--device cuda", "--preset paper", "cutoffs=20000", "RUN", "FOLDER", "wikitext-103")
DOCUMENTS = ("README.md", "docs/data.md", "docs/language_modelling.md", "docs/reinforcement_learning.md",
             "docs/translation.md", "docs/engines.md")  # fmt: skip


def lines_of(document: str) -> list[str]:
    """The command lines in its blocks, without what is explained behind them."""
    lines = re.findall(rf"^(?:    )?(?:echo .* \| )?{NAME} .*$", (ROOT / document).read_text(), re.MULTILINE)
    return [line.strip().split("  ")[0].split(" # ")[0] for line in lines]


def write_sources(place: Path) -> None:
    """What the documents take for granted: novels and captions, and two corpora in the place of downloaded ones."""
    (place / "novels").mkdir()
    for name in ("novels/first.txt", "my-novel.txt", "captions.en"):
        (place / name).write_text(LINE * (3 if name == "captions.en" else 200))
    write_pairs(place)


def prepared(corpus: str) -> list[str]:
    """The same command for made-up data."""
    if corpus in PAIR_CORPORA:
        return ["prepare", "pairs", "--from", "train.de", "train.en", "--vocab-size", "300", "--out", f"data/{corpus}"]
    return ["prepare", "text", "--from", "novels", "--tokens", "characters", "--out", f"data/{corpus}"]


def small(words: list[str]) -> list[str]:
    """The same command, quick."""
    command, *rest = words
    if command == "prepare" and "--from" not in rest:
        return prepared(rest[0])
    if command == "bench":
        return [*words, "--quick", "--out", "measured"]
    if command == "demo":
        return [*words, "--preset", "smoke"]
    if command == "reproduce":
        return [*words, "--scale", "smoke", "--seeds", "1"]
    if command in ("translate", "tune"):
        return [*words, "extra_length=3"]
    return [word for word in words if not word.startswith("steps=")]


def make_way(words: list[str]) -> None:
    """Prepare a corpus that the command trains on, and remove what an earlier line of the document has trained."""
    options = understand(words)
    fields = dict(text.split("=", 1) for text in options.overrides)
    downloaded = options.resume is None and options.task in {*KNOWN, *PAIR_CORPORA} - {"text", "pairs"}
    if downloaded and not Path(f"data/{options.task}").exists():
        assert main(prepared(options.task)) == 0
    if options.resume is None and options.out is None:
        core, scale = fields.get("core", "feedback"), options.preset or "laptop"
        shutil.rmtree(f"runs/{options.task}-{core}-{scale}-{options.seed or 0}", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_run_in_order(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sources(tmp_path)
    preset = presets.preset

    def smaller(task: str, scale: str = "laptop", *others: object) -> RunConfig:
        return preset(task, "smoke" if scale == "laptop" else scale, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(presets, "preset", smaller)
    lines = [line for line in lines_of(document) if not any(part in line for part in LEFT_OUT)]
    assert len(lines) > 1
    for line in lines:
        given = re.match(r'echo "(.*)" \| ', line) or re.search(r" < (\S+)$", line)
        text = "" if given is None else given[1] if line.startswith("echo") else (tmp_path / given[1]).read_text()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        words = small(shlex.split(line.split(f"{NAME} ", 1)[1].split(" < ")[0]))
        for moved in re.findall(r"data=(corpora/(\S+))", line):
            if not Path(moved[0]).exists():
                Path(moved[0]).parent.mkdir(exist_ok=True)
                shutil.move(f"data/{moved[1]}", moved[0])
        if words[0] == "train":
            make_way(words)
        assert main(words) == 0, f"{line}\n{capfd.readouterr().err}"
