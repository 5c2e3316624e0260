"""Copy and reverse with an encoder: all digits are read at once, then written, at ten times the length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from feedback_transformer.config import documented
from feedback_transformer.data.pairs import SPECIAL, PairSplit, Side
from feedback_transformer.decoding import Search
from feedback_transformer.model.encoder_decoder import END
from feedback_transformer.tasks.copying import Copying
from feedback_transformer.tasks.pair_task import PairTask, write_targets
from feedback_transformer.tasks.task import derive_seed

FRESH = 4096  # pairs per pass, when every pass draws new ones


@dataclass(frozen=True)
class CopyingPairs(PairTask):
    """The encoder reads digits, then the decoder writes them until it writes `end`.

    Reversing 3 1 4:

        source   3  1  4  end
        input    begin  4  1  3
        label      4    1  3  end

    Scored like `Copying`: `character` and `sequence`, the fractions of symbols and of whole answers that are right.
    """

    reverse: bool = documented(False, "write the digits backwards")
    length: int = documented(40, "digits in the longest training string")
    min_length: int = documented(0, "digits in the shortest training string; 0 means all have the same length")
    test_length: int = documented(400, "digits in the test strings")
    plain: float = documented(0.0, "the fraction of training strings made of only 2 to 5 different digits")

    def __post_init__(self) -> None:
        self.copying()  # has the same limits, and says so

    def copying(self) -> Copying:
        return Copying(self.reverse, self.length, self.min_length, self.test_length, self.plain)

    @property
    def input_size(self) -> int:
        return SPECIAL + 10

    @property
    def metric(self) -> str:
        return "character"

    def held_out(self) -> CopyingPairs:
        return replace(self, length=self.test_length, min_length=0, plain=0.0)

    def pairs(self, count: int, seed: int) -> PairSplit:
        strings = [SPECIAL + digits for digits in self.copying().strings(count, seed)]
        answers = [string[::-1] if self.reverse else string for string in strings]
        source, target = ([np.append(row, END) for row in side] for side in (strings, answers))
        return PairSplit(Side.join(source), Side.join(target))

    def training_pairs(self, count: int, seed: int, number: int) -> PairSplit:
        """The same `count` pairs in every pass; or, for 0, fresh ones."""
        return self.pairs(count or FRESH, derive_seed(seed, "train", 0 if count else 1 + number))

    def evaluation(self, split: str, count: int, seed: int) -> PairSplit:
        return self.held_out().pairs(count, derive_seed(seed, split))

    def score(self, model: nn.Module, data: PairSplit, device: torch.device) -> dict[str, float]:
        search = Search(beam=1, length_ratio=1.0, extra_length=1)
        written = write_targets(model, [data.source[i] for i in range(len(data))], search, device)
        characters = right_characters = right_sequences = 0
        for i, tokens in enumerate(written):
            wanted, found = data.target[i].tolist(), [*tokens, END]
            same = sum(a == b for a, b in zip(wanted, found, strict=False))
            characters, right_characters = characters + len(wanted), right_characters + same
            right_sequences += wanted == found
        return {"character": right_characters / characters, "sequence": right_sequences / len(data)}
