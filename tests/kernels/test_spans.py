"""Adaptive spans in every engine: what the step loop computes, of fewer memories."""

from __future__ import annotations

import pytest
import torch

from feedback_transformer.model import adaptive_span
from feedback_transformer.model.memory import MemoryState
from tests.kernels.cases import (
    EXTENTS,
    SPANS,
    assert_same,
    changed,
    new_case,
    new_core,
    results,
    with_spans,
)


@pytest.fixture
def short_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small models have windows that are shorter than their memory."""
    monkeypatch.setattr(adaptive_span, "STRIDE", 4)


@pytest.mark.usefixtures("short_strides")
@pytest.mark.parametrize(
    ("norm", "shared", "slopes", "resets"), [("pre", True, (), True), ("post", False, (1.0, 0.1), False)]
)
@pytest.mark.parametrize("extents", EXTENTS)
def test_spans_equal_the_loop(
    engine: str, norm: str, shared: bool, slopes: tuple[float, ...], resets: bool, extents: str
) -> None:
    config = changed(SPANS, norm=norm, shared_kv=shared, position_slopes=slopes)
    core = with_spans(new_core(config), EXTENTS[extents])
    for seed, (slots, steps, ragged) in enumerate([(0, 4, True), (40, 1, False), (40, 9, True), (13, 14, True)]):
        case = new_case(config, steps=steps, slots=slots, ragged=ragged, resets=resets, seed=seed)
        assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.usefixtures("short_strides")
@pytest.mark.parametrize("cut", [1, 4, 6])
def test_spans_in_two_blocks_carried_without_a_cut_equal_one(engine: str, cut: int) -> None:
    core, case = with_spans(new_core(SPANS), EXTENTS["mixed"]), new_case(SPANS, resets=True, slots=40)
    assert_same(results(core, engine, case, cut), results(core, engine, case))
    assert_same(results(core, engine, case, cut), results(core, "loop", case))


@pytest.mark.parametrize("threads", [1, 2])
def test_spans_in_single_precision_are_near_the_loop_with_any_number_of_threads(engine: str, threads: int) -> None:
    config = changed(SPANS, model_dim=16, head_dim=8)
    core = with_spans(new_core(config, torch.float32), EXTENTS["one long"])
    case = new_case(config, slots=40, dtype=torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = results(core, engine, case)
    finally:
        torch.set_num_threads(before)
    assert_same(found, results(core, "loop", case), torch.float32)


def test_memories_beyond_the_longest_span_change_nothing_but_are_kept(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, case = with_spans(new_core(SPANS), EXTENTS["mixed"]), new_case(SPANS, slots=40, ragged=False)
    whole = results(core, engine, case)  # strides of 64: nothing is cut off
    monkeypatch.setattr(adaptive_span, "STRIDE", 1)
    assert core.stack.reach() == 24
    assert_same(results(core, engine, case), whole)
    case.memory[:, : 40 - 24] = 1e3
    cut = results(core, engine, case)
    torch.testing.assert_close(cut["y"], whole["y"], rtol=0, atol=1e-12)
    _, state = core(case.x, MemoryState(case.memory[:, None], case.length))
    assert torch.equal(state.memory[:, 0, : 40 - 7], case.memory[:, 7:])


@torch.no_grad()
@pytest.mark.usefixtures("short_strides")
@pytest.mark.parametrize("extents", EXTENTS)
def test_steps_with_spans_equal_the_loop_also_when_a_span_grows(engine: str, extents: str) -> None:
    core = with_spans(new_core(SPANS), EXTENTS[extents])
    case = new_case(SPANS, steps=30, slots=30)
    states = {name: MemoryState(case.memory[:, None], case.length) for name in (engine, "loop")}
    for t in range(30):
        if t == 15:
            with_spans(core, EXTENTS["whole"])  # keys and values that the loop had let go of come back with a detach
            states = {name: state if name == "native" else state.detach() for name, state in states.items()}
        found = {}
        for core.engine in states:
            y, states[core.engine] = core.step(case.x[:, t], states[core.engine])
            found[core.engine] = y
        torch.testing.assert_close(found[engine], found["loop"], rtol=0, atol=1e-11)
        assert states[engine].memory.shape == states["loop"].memory.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_out_of_span_may_be_far_above_those_within(engine: str, dtype: torch.dtype) -> None:
    """In a softmax over all of them, nothing would be left for those within."""
    config = changed(SPANS, position_slopes=(1.0, 0.1))
    core = with_spans(new_core(config, dtype), EXTENTS["mixed"])
    with torch.no_grad():
        reach = max(span.reach() for span in core.stack.spans())
        seen = max(int(span.extent.max() * config.memory_size + config.span_ramp) + 2 for span in core.stack.spans())
        assert seen < reach
        core.stack.position.bias[:, : config.memory_size - seen] = 3000.0
    case = new_case(config, slots=40, dtype=dtype)
    expected = results(core, "loop", case)
    assert all(torch.isfinite(value).all() for value in expected.values())
    assert_same(results(core, engine, case), expected, dtype)
