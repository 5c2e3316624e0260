"""How translations and summaries are scored: BLEU and ROUGE, by the standard libraries.

    bleu             sacrebleu, whose signature states everything the number depends on
    tokenized_bleu   BLEU after Moses tokenisation and compound splitting, as the paper reports it
    rouge            ROUGE-1, -2 and -L (of the summary's sentences), F-measure, stemmed

The extra `translation` installs the libraries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from feedback_transformer.config import ConfigError

ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rougeLsum"}  # our name -> the library's


class Bleu(NamedTuple):
    score: float  # 0 to 100
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Bleu:
    """Corpus BLEU with one reference each. `none` takes texts as they are, already tokenised."""
    metric = _library("sacrebleu").metrics.BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score([_line(text) for text in hypotheses], [[_line(text) for text in references]])
    return Bleu(float(score.score), str(metric.get_signature()))


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """BLEU of Moses tokens, with compounds (well-known) split at their hyphens."""
    tokenizer = _library("sacremoses").MosesTokenizer(lang=language)

    def tokens(text: str) -> str:
        return split_compounds(tokenizer.tokenize(_line(text), return_str=True, escape=False))

    return bleu([*map(tokens, hypotheses)], [*map(tokens, references)], tokenize="none").score


def split_compounds(text: str) -> str:
    """Make a hyphen inside a word a marked token. The match consumes its neighbours, as in the usual script.

    >>> split_compounds("a well-known e-mail x-y-z")
    'a well ##AT##-##AT## known e ##AT##-##AT## mail x ##AT##-##AT## y-z'
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Means over all texts, 0 to 100; newlines separate the sentences of a text."""
    scorer = _library("rouge_score.rouge_scorer").RougeScorer([*ROUGE.values()], use_stemmer=True)
    totals = dict.fromkeys(ROUGE, 0.0)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scores = scorer.score(reference, hypothesis)
        for name, own in ROUGE.items():
            totals[name] += 100 * scores[own].fmeasure / len(references)
    return totals


def _line(text: str) -> str:
    return text.replace("\n", " ")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            "this score needs libraries that are not installed; install them with: pip install sacrebleu sacremoses "
            "rouge-score"
        ) from None
