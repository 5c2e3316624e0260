"""Tasks on pairs: scores against numbers known from elsewhere, targets in order, and models that learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from feedback_transformer import ConfigError
from feedback_transformer.data.pairs import SPECIAL
from feedback_transformer.data.prepare_pairs import prepare_pairs
from feedback_transformer.decoding import Search
from feedback_transformer.model.encoder_decoder import BEGIN, END, PAD
from feedback_transformer.presets import preset
from feedback_transformer.tasks.copying_pairs import CopyingPairs
from feedback_transformer.tasks.pair_task import write_targets
from feedback_transformer.tasks.text_scores import bleu, rouge, split_compounds, tokenized_bleu
from feedback_transformer.tasks.translation import Translation
from feedback_transformer.training.supervised import train
from tests.data.test_pairs import write_pairs

CPU = torch.device("cpu")


class Oracle:
    """Reads a source of tokens and writes what `answer` makes of it, one token after the other."""

    def __init__(self, reverse: bool = False) -> None:
        self.reverse = reverse

    def read(self, tokens: Tensor) -> Reading:
        rows = [[token for token in row if token > END] for row in tokens.tolist()]
        return Reading([row[::-1] if self.reverse else row for row in rows])


class Reading:
    def __init__(self, answers: list[list[int]]) -> None:
        self.answers = answers

    def step(self, tokens: Tensor, state: Written | None = None) -> tuple[Tensor, Written]:
        at = 0 if state is None else state.at + 1
        logits = torch.zeros(len(tokens), 40)
        beams = len(tokens) // len(self.answers)
        for row in range(len(tokens)):
            answer = [*self.answers[row // beams], END]
            logits[row, answer[min(at, len(answer) - 1)]] = 20
        return logits, Written(at)

    def reorder(self, index: Tensor) -> Reading:
        return Reading([self.answers[i] for i in index.tolist()])


class Written:
    def __init__(self, at: int) -> None:
        self.at = at

    def reorder(self, index: Tensor) -> Written:
        return self


@pytest.mark.parametrize("beam", [1, 3])
def test_targets_come_in_the_order_of_their_sources(beam: int) -> None:
    random = np.random.default_rng(0)
    sources = [np.append(random.integers(SPECIAL, 40, size=n), END) for n in random.integers(1, 12, size=50)]
    written = write_targets(Oracle(), sources, Search(beam), CPU, budget=40)  # type: ignore[arg-type]
    assert written == [source[:-1].tolist() for source in sources]


@pytest.mark.parametrize("reverse", [False, True])
def test_an_oracle_copies_and_reverses_without_a_mistake_and_another_does_not(reverse: bool) -> None:
    task = CopyingPairs(reverse=reverse, length=9, min_length=2, test_length=15)
    data = task.evaluation("test", 20, seed=3)
    assert set(data.source.lengths) == {16}
    assert task.score(Oracle(reverse), data, CPU) == {"character": 1.0, "sequence": 1.0}  # type: ignore[arg-type]
    wrong = task.score(Oracle(not reverse), data, CPU)  # type: ignore[arg-type]
    assert wrong["character"] < 0.3
    assert wrong["sequence"] == 0


def test_pairs_of_a_pass_follow_from_the_seed() -> None:
    task = CopyingPairs(length=9, min_length=2)
    passes = [task.lanes(500, 0, seed, number) for seed, number in ((0, 0), (0, 0), (0, 1), (1, 0))]
    firsts = [lanes.block(0, 1) for lanes in passes]
    assert all(torch.equal(a, b) for a, b in zip(firsts[0], firsts[1], strict=True))
    for other in firsts[2:]:
        assert firsts[0][0].shape != other[0].shape or not torch.equal(firsts[0][0], other[0])
    source, read, labels = firsts[0]
    assert (read[:, 0] == BEGIN).all()
    assert torch.equal(labels[labels >= 0].sort().values, source[source != PAD].sort().values)


def test_bleu_is_that_of_sacrebleu_and_says_how() -> None:
    score, signature = bleu(["the cat sat on the mat ."], ["the cat sat on a mat ."])
    assert score == pytest.approx(48.892, abs=0.01)  # sqrt[4](6/7 * 4/6 * 2/5 * 1/4)
    assert "tok:13a" in signature
    assert bleu(["a b c d"], ["a b c d"], tokenize="none").score == pytest.approx(100)


def test_tokenized_bleu_splits_compounds() -> None:
    assert split_compounds("x-y-z a-b -c d-") == "x ##AT##-##AT## y-z a ##AT##-##AT## b -c d-"
    hypothesis, reference = ["Der gut-bekannte Mann läuft."], ["Der bekannte Mann läuft."]
    assert tokenized_bleu(hypothesis, reference, "de") > bleu(hypothesis, reference).score
    assert tokenized_bleu(reference, reference, "de") == pytest.approx(100)


def test_rouge_is_right_on_an_example() -> None:
    scores = rouge(["police killed the gunman"], ["police kill the gunman"])
    assert scores["rouge1"] == pytest.approx(100), "stemmed"
    scores = rouge(["the gunman police killed"], ["police killed the gunman"])
    assert scores["rouge1"] == pytest.approx(100)
    assert scores["rougeL"] == pytest.approx(50)
    assert scores["rouge2"] == pytest.approx(100 * 2 / 3)
    two = rouge(["a b .\nc d ."], ["c d .\na b ."])
    assert two["rougeL"] == pytest.approx(100), "sentences in any order"


@pytest.mark.parametrize("core", ["feedback", "transformer"])
def test_a_small_model_learns_to_reverse(core: str, tmp_path: Path) -> None:
    run = preset("reverse-pairs", "smoke", core).override(
        {"length": "2", "min_length": "1", "test_length": "2", "steps": "80", "learning_rate": "2e-2",
         "batch_tokens": "150", "num_layers": "1", "encoder_layers": "1", "test_episodes": "60", "eval_every": "80"}
    )  # fmt: skip
    record = train(run, tmp_path / "run")
    assert record["test"]["character"] > 0.55


def test_an_empty_source_gives_an_empty_target(tmp_path: Path) -> None:
    prepare_pairs("pairs", tmp_path / "data", write_pairs(tmp_path), vocab_size=300)
    task = Translation(str(tmp_path / "data"))
    assert task.write(Oracle(), ["", "  "], Search(1), CPU) == ["", ""]  # type: ignore[arg-type]


def test_what_frequent_words_score_without_reading_a_source(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, 60)
    target.write_text("one two\n" * 57 + "one two\none two\nsix seven\n")  # the last three are the test
    prepare_pairs("pairs", tmp_path / "data", (source, target), vocab_size=280)
    task = Translation(str(tmp_path / "data"), measure="rouge")
    assert task.bounds() == {"frequent words": pytest.approx(200 / 3)}
    assert Translation(str(tmp_path / "data"), measure="rouge", test_pairs=2).bounds()["frequent words"] == 100


def test_a_score_without_its_library_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(ConfigError, match="install them with: pip install sacrebleu"):
        bleu(["a"], ["a"])


def test_what_cannot_be_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="measure = 'meteor' is not known; choose one of bleu, rouge"):
        Translation(measure="meteor")
    with pytest.raises(ConfigError, match="beam = 0 must be 1 or more"):
        Translation(beam=0)
    with pytest.raises(ConfigError, match=r"Translation\.data is not set"):
        _ = Translation().input_size


def test_the_three_columns_of_the_papers_table() -> None:
    for name, dim, heads, ff_dim, rate in (
        ("cnn-dailymail", 512, 8, 2048, 5e-4),
        ("wmt14-ende", 1024, 16, 4096, 1e-3),
        ("iwslt14-deen", 512, 4, 1024, 5e-4),
    ):
        run = preset(name, "paper")
        model = run.model
        assert (model.encoder_layers, model.num_layers, model.dropout) == (6, 6, 0.3)
        assert (model.model_dim, model.num_heads, model.ff_dim) == (dim, heads, ff_dim)
        assert run.train.learning_rate == rate
