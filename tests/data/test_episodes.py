"""Streams and lanes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from feedback_transformer.data.episodes import NO_LABEL, Episodes, training_lanes, whole_lanes


def numbered(*lengths: int) -> Episodes:
    """Episode i holds tokens 100 * i, 100 * i + 1, ..; every position is labelled with its token."""
    tokens = [100 * i + np.arange(length) for i, length in enumerate(lengths)]
    return Episodes.join(tokens, tokens)


def test_a_stream_is_cut_into_consecutive_lanes() -> None:
    lanes = training_lanes(numbered(3, 2, 4, 2, 1), batch_size=3, offset=0)
    assert lanes.tokens.tolist() == [[0, 1, 2, 100], [101, 200, 201, 202], [203, 300, 301, 400]]


def test_what_a_lane_cannot_know_carries_no_label() -> None:
    lanes = training_lanes(numbered(3, 2, 4, 2, 1), batch_size=3, offset=0)
    none = NO_LABEL
    assert lanes.labels.tolist() == [[0, 1, 2, 100], [none, 200, 201, 202], [none, 300, 301, 400]]


def test_an_offset_rotates_the_stream() -> None:
    lanes = training_lanes(numbered(3, 2), batch_size=1, offset=4)
    assert lanes.tokens.tolist() == [[101, 0, 1, 2, 100]]
    assert lanes.labels.tolist() == [[NO_LABEL, 0, 1, 2, 100]]


def test_too_few_tokens_for_the_lanes_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="3 tokens cannot fill 4 lanes"):
        training_lanes(numbered(3), batch_size=4, offset=0)


def test_whole_lanes_begin_with_an_episode_and_lose_nothing() -> None:
    episodes = numbered(3, 2, 4, 2, 1)
    lanes = whole_lanes(episodes, batch_size=2)
    assert lanes.tokens[:, 0].tolist() == [0, 300]
    kept = lanes.labels[lanes.labels != NO_LABEL]
    assert sorted(kept.tolist()) == sorted(episodes.labels.tolist())


def test_more_lanes_than_episodes_are_not_made() -> None:
    assert whole_lanes(numbered(3, 2), batch_size=10).tokens.shape[0] == 2


def test_blocks_follow_each_other() -> None:
    lanes = training_lanes(numbered(10), batch_size=2, offset=0)
    first, second = lanes.block(0, 2)[0], lanes.block(2, 3)[0]
    assert torch.equal(torch.cat([first, second], dim=1), lanes.tokens)
