"""What a task is: a seeded generator of episodes, and an exact way to score a model on them."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from feedback_transformer.data.episodes import NO_LABEL, Episodes, Lanes, resets, training_lanes, whole_lanes
from feedback_transformer.decoding import BLOCK, Sampling, generate

AnyTask = TypeVar("AnyTask", bound="EpisodeTask")

SPLITS = ("train", "validation", "test")
LANE_STEPS = 2048  # a lane of fresh episodes is about this long, and at least LANE_EPISODES episodes
LANE_EPISODES = 8


class Task(Protocol):
    """A frozen dataclass; its fields set the difficulty, so a curriculum is the same task with other fields."""

    @property
    def input_size(self) -> int:
        """How many input symbols there are."""
        ...

    @property
    def output_size(self) -> int:
        """How many different labels there are."""
        ...

    @property
    def metric(self) -> str:
        """The score that ranks models."""
        ...

    @property
    def lower_is_better(self) -> bool: ...

    def fingerprints(self) -> dict[str, str]:
        """Hashes of the data outside the configuration that a model depends on, if there is any."""
        ...

    def lanes(self, batch_size: int, count: int, seed: int, number: int) -> Lanes:
        """What pass `number` over the training data reads: B lanes, of `count` episodes where that applies."""
        ...

    def evaluation(self, split: str, count: int, seed: int) -> Any:
        """What models are scored on: the `validation` or the `test` set."""
        ...

    def score(self, model: nn.Module, data: Any, device: torch.device) -> dict[str, float]:
        """Scores of a model on that data, among them `metric`."""
        ...


class EpisodeTask(Task, Protocol):
    """A task made of episodes that are drawn from a seed."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input symbols; token i is inputs[i]."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output symbols; label i is outputs[i]."""
        ...

    def episodes(self, count: int, seed: int) -> Episodes:
        """The same seed always gives the same episodes."""
        ...

    def held_out(self: AnyTask) -> AnyTask:
        """The task that models are scored on; a different one where test episodes are longer."""
        return self

    @property
    def begin(self) -> int | None:
        """The token that begins every episode, if the memory is emptied there; None if the memory is carried over."""
        return None

    @property
    def input_size(self) -> int:
        return len(self.inputs)

    @property
    def output_size(self) -> int:
        return len(self.outputs)

    @property
    def lower_is_better(self) -> bool:
        return False

    def fingerprints(self) -> dict[str, str]:
        return {}

    def lanes(self, batch_size: int, count: int, seed: int, number: int) -> Lanes:
        """The same `count` episodes in every pass, each time from a different offset; or, for 0, fresh ones.

        The number of fresh episodes is one more than a multiple of B, so that episodes of equal length have a different
        phase in every lane and a block holds all phases.
        """
        own = derive_seed(seed, "train", 1 + number)
        if count:
            episodes = _fixed_episodes(self, count, derive_seed(seed, "train"))  # type: ignore[arg-type]
        else:
            probe = self.episodes(8, own)
            per_lane = max(LANE_EPISODES, math.ceil(LANE_STEPS * len(probe) / len(probe.tokens)))
            episodes = self.episodes(batch_size * per_lane + 1, own)
        offset = int(np.random.default_rng(own).integers(len(episodes.tokens)))
        return training_lanes(episodes, batch_size, offset)

    def evaluation(self, split: str, count: int, seed: int) -> Episodes:
        return self.held_out().episodes(count, derive_seed(seed, split))


@functools.lru_cache(maxsize=1)  # a training reads one set at a time
def _fixed_episodes(task: EpisodeTask, count: int, seed: int) -> Episodes:
    return task.episodes(count, seed)


def derive_seed(seed: int, split: str, number: int = 0) -> int:
    """A seed for one purpose, different from all others, so that no two splits share the seed of an episode."""
    return int(np.random.SeedSequence([seed, SPLITS.index(split), number]).generate_state(1, np.uint64)[0])


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def spell(task: EpisodeTask, episodes: Episodes) -> str:
    """The tokens as words, to read: `spell(task, task.episodes(1, seed=0))`."""
    return " ".join(task.inputs[token] for token in episodes.tokens)


@torch.no_grad()
def predict(model: nn.Module, tokens: Tensor, device: torch.device, begin: int | None = None) -> Tensor:
    """tokens [B, n] -> the most likely output at every position [B, n], from an empty memory, in blocks.

    The memory is emptied again before every token `begin`.
    """
    state, answers = None, []
    for block in torch.split(tokens, BLOCK, dim=1):
        block = block.to(device)
        logits, state = model(block, state, resets(block, begin))
        answers.append(logits.argmax(dim=-1).cpu())
    return torch.cat(answers, dim=1)


def label_accuracy(model: nn.Module, episodes: Episodes, device: torch.device, begin: int | None = None) -> float:
    """The fraction of labels that are right."""
    right = right_labels(model, episodes, device, begin)
    return int(right.sum()) / max(1, len(right))


def right_labels(
    model: nn.Module, episodes: Episodes, device: torch.device, begin: int | None = None
) -> NDArray[np.bool_]:
    """Whether each label is right, in their order.

    Episodes follow each other in a lane, with the memory carried unless each starts with the token `begin`.
    """
    lanes = whole_lanes(episodes, max(1, len(episodes) // LANE_EPISODES))
    right = predict(model, lanes.tokens, device, begin) == lanes.labels
    return right[lanes.labels != NO_LABEL].numpy()


def continue_greedily(model: nn.Module, prompts: Tensor, steps: int, device: torch.device) -> Tensor:
    """prompts [B, n] -> the `steps` tokens [B, steps] that the model generates, each becoming its next input."""
    written = generate(model, prompts.to(device), Sampling(temperature=0))
    return torch.stack(list(itertools.islice(written, steps)), dim=1).cpu()


def free_running_scores(
    model: nn.Module, episodes: Episodes, device: torch.device, batch_size: int = 256
) -> dict[str, float]:
    """Character and sequence accuracy of the answers that the model generates after reading each prompt.

    An episode's prompt is everything up to its first labelled position; the answer is all its labels. Prompts of the
    same length are answered together, so none needs padding.
    """
    by_length: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
    for begin, end in episodes.bounds():
        labels = torch.from_numpy(episodes.labels[begin:end])
        first = int((labels != NO_LABEL).nonzero()[0])
        prompt = torch.from_numpy(episodes.tokens[begin : begin + first + 1])
        answer = labels[labels != NO_LABEL]
        by_length.setdefault((len(prompt), len(answer)), []).append((prompt, answer))
    characters = right_characters = right_sequences = 0
    for (_, steps), group in by_length.items():
        for at in range(0, len(group), batch_size):
            prompts, answers = (torch.stack(part) for part in zip(*group[at : at + batch_size], strict=True))
            right = continue_greedily(model, prompts, steps, device) == answers
            characters += right.numel()
            right_characters += int(right.sum())
            right_sequences += int(right.all(dim=1).sum())
    return {"character": right_characters / characters, "sequence": right_sequences / len(episodes)}
