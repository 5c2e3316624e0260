"""Language modelling on a corpus that the test makes itself, from preparing it to writing text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from feedback_transformer import LanguageModel, ModelConfig
from feedback_transformer.cli import main
from feedback_transformer.data.corpora import DataError
from feedback_transformer.data.corpus import Corpus
from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.data.token_lanes import TokenLanes, scoring_blocks
from feedback_transformer.decoding import text_pieces
from feedback_transformer.presets import preset
from feedback_transformer.tasks.language import Language, mean_loss
from feedback_transformer.training.stream import TrainingStream

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of which every character follows from the one before: abcabcabc.."""
    home = tmp_path_factory.mktemp("corpus")
    (home / "text.txt").write_text("abc" * 2000)
    source, out = str(home / "text.txt"), str(home / "data")
    assert main(["prepare", "text", "--from", source, "--tokens", "characters", "--out", out]) == 0
    return home / "data"


def test_lanes_are_the_corpus_cut_and_labels_are_the_next_tokens() -> None:
    lanes = TokenLanes(np.arange(21, dtype=np.uint8), batch_size=2)
    tokens, labels = lanes.block(3, 4)
    assert lanes.steps == 10
    assert tokens.tolist() == [[3, 4, 5, 6], [13, 14, 15, 16]]
    assert labels.tolist() == [[4, 5, 6, 7], [14, 15, 16, 17]]


def test_too_short_a_text_for_the_lanes_is_a_sentence() -> None:
    with pytest.raises(DataError, match="3 tokens do not fill 8 lanes"):
        TokenLanes(np.arange(3, dtype=np.uint8), batch_size=8)


@pytest.mark.parametrize(("total", "lanes", "context"), [(50, 1, 8), (50, 3, 8), (47, 4, 5), (20, 7, 3)])
def test_every_token_but_the_first_is_scored_once_after_its_context(total: int, lanes: int, context: int) -> None:
    asked: list[int] = []
    for tokens, labels, _ in scoring_blocks(np.arange(total, dtype=np.uint8), lanes, context, steps=6):
        rows, columns = (labels != NO_LABEL).nonzero(as_tuple=True)
        assert torch.equal(labels[rows, columns], tokens[rows, columns] + 1)
        asked += labels[rows, columns].tolist()
    assert sorted(asked) == list(range(1, total))


def test_a_single_lane_begins_where_the_text_does() -> None:
    (tokens, labels, reset), *others = scoring_blocks(np.arange(5, dtype=np.uint8), 1, context=100, steps=64)
    assert not others
    assert tokens.tolist() == [[0, 1, 2, 3]]
    assert labels.tolist() == [[1, 2, 3, 4]]
    assert reset.tolist() == [[True, False, False, False]]


class Counter(nn.Module):
    """Charges as many nats as it has read since the last reset, at most `memory_size`: shows who lacks context."""

    def __init__(self, memory_size: int) -> None:
        super().__init__()
        self.config = ModelConfig(memory_size=memory_size)

    def losses(self, tokens: Tensor, labels: Tensor, state: Any, reset: Tensor | None) -> tuple[Tensor, Any]:
        count = torch.zeros(len(tokens)) if state is None else state
        charged = []
        for t in range(tokens.shape[1]):
            count = torch.where(reset[:, t], 0.0, count) if reset is not None else count
            charged.append(count.clamp(max=self.config.memory_size))
            count = count + 1
        return torch.stack(charged, dim=1)[labels != NO_LABEL], count


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_scores_do_not_depend_on_the_number_of_lanes_where_memory_is_the_window(lanes: int) -> None:
    tokens = np.zeros(1000, dtype=np.uint8)
    expected = (sum(range(10)) + 10 * (999 - 10)) / 999  # all but the first ten predictions have full memory
    assert mean_loss(Counter(10), tokens, CPU, lanes) == pytest.approx(expected)


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_a_corpus_is_learned_evaluated_and_continued(
    core: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["train", "text", f"data={folder}", f"core={core}", "model_dim=16", "num_layers=1", "num_heads=2"]
    run += ["memory_size=4", "steps=150", "batch_size=8", "bptt=8", "bptt_start=0", "eval_every=75", "dropout=0"]
    run += ["learning_rate=1e-2", "warmup_steps=10", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0
    assert "test bits" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert '"bits": 0.0' in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--seed", "3"]) == 2
    assert "are for tasks with random episodes" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "valid_tokens=5"]) == 2
    assert "valid_tokens changes nothing" in capsys.readouterr().err
    generate = ["generate", str(tmp_path / "run"), "--prompt", "abcab", "--max-tokens", "10", "--temperature", "0"]
    assert main(generate) == 0
    assert capsys.readouterr().out == "abcab" + "cabcabcabc" + "\n"
    assert main([*generate, "--samples", "2"]) == 0
    assert capsys.readouterr().out.count("abcabcabcabcabc") == 2


def test_a_block_as_long_as_a_lane_never_runs_into_the_next_one(folder: Path, tmp_path: Path) -> None:
    """Lanes differ in length from pass to pass; a block is cut to the lanes of its own pass."""
    run = preset("text", "smoke").override({"data": str(folder), "batch_size": "8", "bptt": "674", "steps": "1"})
    stream = TrainingStream(run)
    for _ in range(30):
        tokens, labels, begins = stream.next_block(674)
        assert begins
        assert tokens.shape == labels.shape
        assert tokens.shape[0] == 8


@pytest.mark.parametrize("tokens", ["characters", "bytes", "words"])
def test_text_is_shown_in_pieces_that_make_up_the_whole(tokens: str, tmp_path: Path) -> None:
    text = "Ein Bär, zwei Bären — und ein 熊 .\n" * 40
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    out = tmp_path / "data"
    assert main(["prepare", "text", "--from", str(tmp_path / "text.txt"), "--tokens", tokens, "--out", str(out)]) == 0
    vocabulary = Corpus.open(out).vocabulary
    numbers = vocabulary.encode(text[:200]).tolist()
    pieces = list(text_pieces(vocabulary.decode, numbers[:7], iter(numbers[7:])))
    assert "".join(pieces) == vocabulary.decode(numbers)
    assert len(pieces) > 20


def test_a_language_model_without_a_corpus_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, sentence in {
        ("train", "text"): "Language.data is not set",
        ("train", "text", "data=nowhere"): "nowhere holds no prepared corpus",
        ("generate", "nowhere"): "there is no checkpoint nowhere",
    }.items():
        assert main(list(arguments)) == 2
        assert sentence in capsys.readouterr().err
    toy = tmp_path / "toy"
    assert main(["train", "random-walk", "--preset", "smoke", "--out", str(toy), "--quiet"]) == 0
    assert main(["generate", str(toy)]) == 2
    assert "has no text to generate" in capsys.readouterr().err


def test_perplexity_of_a_uniform_model_is_the_vocabulary(folder: Path) -> None:
    task = Language(str(folder))
    model = LanguageModel(ModelConfig(model_dim=8, memory_size=4), task.input_size)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    assert task.score(model, task.evaluation("test", 0, 0), CPU) == {"bits": pytest.approx(math.log2(task.input_size))}


def test_a_corpus_of_another_name_is_noted(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--preset", "smoke", "steps=1", "eval_every=1", f"data={folder}", "--quiet", "--out"]
    assert main(["train", "text", *run, str(tmp_path / "text")]) == 0
    assert "note" not in capsys.readouterr().err
    assert main(["train", "enwik8", *run, str(tmp_path / "bytes")]) == 0
    assert "note: this corpus is 'text'; scores on it are not scores on enwik8" in capsys.readouterr().err
