"""Translation and summarization: write the target of a source (paper, sections 4.2.1 and 4.3.1, and appendix)."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from feedback_transformer.config import ConfigError, at_least, check_types, documented, one_of
from feedback_transformer.data.pairs import Pairs, PairSplit
from feedback_transformer.data.prepare_pairs import cut_words
from feedback_transformer.decoding import Search
from feedback_transformer.tasks.pair_task import Draw, PairTask, pair_perplexity, write_targets
from feedback_transformer.tasks.text_scores import bleu, rouge, tokenized_bleu

MEASURES = ("bleu", "rouge")
TOKENIZATIONS = ("13a", "intl", "char", "none")
FREQUENT_WORDS, COUNTED = 20, 20_000  # the words of one text for all sources, and the training targets they are from


class HeldOutPairs(NamedTuple):
    """Pairs to score models on, and how to search for their targets."""

    pairs: PairSplit
    search: Search
    timed: bool = False  # whether the speed of decoding is a score too


@dataclass(frozen=True)
class Translation(PairTask):
    """Write the target of every source in a prepared corpus of pairs.

        source   ein hund rennt .
        target   a dog is running .

    Scored by `bleu` (0 to 100) or, with `measure=rouge`, by `rougeL`, and by `perplexity`. Targets are written greedily
    on the validation set and by beam search on the test set, where `words_per_second` is the speed of decoding.
    """

    data: str = documented("", "folder of pairs, made by `feedback-transformer prepare`")
    measure: str = documented("bleu", "the score that ranks models: bleu or rouge")
    tokenization: str = documented("13a", "sacrebleu's: 13a, intl, char, or none for text that is tokenised already")
    valid_pairs: int = documented(0, "validate on this many pairs only, the first ones; 0 means all")
    test_pairs: int = documented(0, "test on this many pairs only, the first ones; 0 means all")
    beam: int = documented(5, "width of the beam search; 1 is greedy")
    length_penalty: float = documented(1.0, "0 favours short targets, 1 ranks by the mean over tokens")
    block_ngrams: int = documented(0, "no sequence of this many tokens is repeated; 0 allows repeats")
    shortest: int = documented(0, "tokens in the shortest target")
    length_ratio: float = documented(1.0, "a target ends after length_ratio * source + extra_length tokens")
    extra_length: int = documented(50, "see length_ratio")

    def __post_init__(self) -> None:
        check_types(self)
        one_of(self, "measure", MEASURES)
        one_of(self, "tokenization", TOKENIZATIONS)
        at_least(self, 0, "valid_pairs", "test_pairs")
        self.search()

    def search(self) -> Search:
        return Search(
            self.beam, self.length_penalty, self.block_ngrams, self.shortest, self.length_ratio, self.extra_length
        )

    @property
    def pairs(self) -> Pairs:
        if not self.data:
            raise ConfigError("Translation.data is not set; give the folder of prepared pairs, data=FOLDER")
        return _open(self.data)

    @property
    def input_size(self) -> int:
        return self.pairs.vocabulary.size

    @property
    def metric(self) -> str:
        return "bleu" if self.measure == "bleu" else "rougeL"

    def fingerprints(self) -> dict[str, str]:
        return self.pairs.fingerprints()

    def training_pairs(self, count: int, seed: int, number: int) -> PairSplit:
        return self.pairs.train

    def evaluation(self, split: str, count: int, seed: int) -> HeldOutPairs:
        search = self.search()
        if split == "test":
            return HeldOutPairs(self.pairs.test.first(self.test_pairs), search, timed=True)
        greedy = Search(1, 0.0, search.block_ngrams, search.min_length, search.length_ratio, search.extra_length)
        return HeldOutPairs(self.pairs.valid.first(self.valid_pairs), greedy)

    def score(self, model: nn.Module, data: HeldOutPairs, device: torch.device) -> dict[str, float]:
        # With one thread, CPU time, which a busy machine does not stretch.
        clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        written = self.write(model, [source for source, _ in data.pairs.texts], data.search, device)
        speed = sum(len(text.split()) for text in written) / (clock() - start)
        return {
            **self.text_scores(written, [target for _, target in data.pairs.texts]),
            "perplexity": pair_perplexity(model, data.pairs, device),
            **({"words_per_second": speed} if data.timed else {}),
        }

    def signature(self) -> str:
        """How the scores were computed, so that they can be compared."""
        return bleu(["a"], ["a"], self.tokenization).signature if self.measure == "bleu" else "rouge-score, stemmed, F1"

    def bounds(self) -> dict[str, float]:
        """What can be scored on the test set without reading a source: by its targets' most frequent words."""
        return {"frequent words": _without_reading(self)}

    def text_scores(self, written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """The scores of `measure`; for BLEU also the paper's tokenised BLEU, unless the text is tokenised already."""
        if self.measure == "rouge":
            return rouge(written, references)
        scores = {"bleu": bleu(written, references, self.tokenization).score}
        if self.tokenization != "none":
            scores["tokenized_bleu"] = tokenized_bleu(written, references, self.pairs.description["languages"][1])
        return scores

    def write(
        self,
        model: nn.Module,
        texts: Sequence[str],
        search: Search,
        device: torch.device,
        draw: Draw | None = None,
    ) -> list[str]:
        """The targets of source texts; an empty source has an empty target."""
        pairs = self.pairs
        shortened = [cut_words(" ".join(text.split()), pairs.description["source_words"]) for text in texts]
        asked = [i for i, text in enumerate(shortened) if text]
        if not asked:
            return ["" for _ in texts]
        sources = pairs.vocabulary.encode_lines([shortened[i] for i in asked])
        found = dict(zip(asked, write_targets(model, sources, search, device, draw=draw), strict=True))
        return [pairs.vocabulary.decode(found[i]) if i in found else "" for i in range(len(texts))]


@functools.lru_cache(maxsize=4)
def _without_reading(task: Translation) -> float:
    pairs, references = task.pairs, [target for _, target in task.pairs.test.first(task.test_pairs).texts]
    words = Counter(pairs.vocabulary.decode(pairs.train.first(COUNTED).target.tokens).split())
    text = " ".join(word for word, _ in words.most_common(FREQUENT_WORDS))
    return task.text_scores([text] * len(references), references)[task.metric]


@functools.lru_cache(maxsize=4)
def _open(folder: str) -> Pairs:
    return Pairs.open(folder)
