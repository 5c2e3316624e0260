"""Every engine computes what the step loop computes: outputs, and the gradient of everything that has one."""

from __future__ import annotations

import itertools
import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.utils import counters

from feedback_transformer import FeedbackTransformer, ModelConfig
from feedback_transformer.kernels import engines
from feedback_transformer.model.memory import MemoryState
from tests.kernels.cases import (
    EXTENTS,
    SMALL,
    SPANS,
    Case,
    assert_same,
    changed,
    new_case,
    new_core,
    results,
    with_spans,
)

# --------------------------------------------------------------------------------------- equal to the loop


@pytest.mark.parametrize(
    ("norm", "shared", "slopes"), [*itertools.product(("pre", "post"), (True, False), ((), (1.0, 0.1)))]
)
@pytest.mark.parametrize("slots", [0, 2, 5])
@pytest.mark.parametrize("resets", [False, True])
def test_outputs_and_gradients_equal_the_loop(
    engine: str, norm: str, shared: bool, slopes: tuple[float, ...], slots: int, resets: bool
) -> None:
    config = changed(SMALL, norm=norm, shared_kv=shared, position_slopes=slopes)
    core = new_core(config)
    for seed, steps in enumerate((1, 3, 11)):  # shorter and longer than the window
        case = new_case(config, steps=steps, slots=slots, resets=resets, seed=seed)
        assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.parametrize("memory", ["weighted-sum", "top", "layer:0", "layer:2", "average"])
def test_every_composition_with_one_memory_equals_the_loop(engine: str, memory: str) -> None:
    config = changed(SMALL, memory=memory)
    core, case = new_core(config), new_case(config)
    assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.parametrize("batch", [1, 2, 17])
@pytest.mark.parametrize(
    ("width", "heads", "head_dim", "hidden"), [(8, 2, 4, 32), (13, 3, 5, 7), (6, 1, 1, 1), (33, 2, 16, 40)]
)
def test_any_width_and_batch_equals_the_loop(
    engine: str, batch: int, width: int, heads: int, head_dim: int, hidden: int
) -> None:
    config = changed(SMALL, model_dim=width, num_heads=heads, head_dim=head_dim, ff_dim=hidden)
    core, case = new_core(config), new_case(config, batch=batch, resets=True)
    assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_full_memory_and_a_window_much_longer_than_the_block_equal_the_loop(engine: str, norm: str) -> None:
    config = changed(SMALL, memory_size=40, norm=norm, num_layers=1)
    core, case = new_core(config), new_case(config, steps=4, slots=40, ragged=False)
    assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("slots", [0, 3, 5])
def test_queries_scaled_by_what_they_see_equal_the_loop(engine: str, norm: str, slots: int) -> None:
    config = changed(SMALL, norm=norm, log_scale=True, position_reach=2, position_slopes=(1.0, 0.1))
    core = new_core(config)
    for resets, steps in itertools.product((False, True), (1, 9)):
        case = new_case(config, steps=steps, slots=slots, resets=resets)
        assert_same(results(core, engine, case), results(core, "loop", case))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_models_and_blocks_equal_the_loop(data: st.DataObject) -> None:
    draw = data.draw
    layers = draw(st.integers(1, 4))
    heads = draw(st.integers(1, 3))
    spans = draw(st.booleans())
    config = ModelConfig(
        num_layers=layers,
        model_dim=draw(st.integers(2, 19)),
        num_heads=heads,
        head_dim=draw(st.integers(1, 9)),
        ff_dim=draw(st.integers(1, 21)),
        memory_size=draw(st.integers(1, 12)),
        memory=draw(st.sampled_from(["weighted-sum", "top", "average", f"layer:{layers - 1}"])),
        shared_kv=draw(st.booleans()),
        norm=draw(st.sampled_from(["pre", "post"])),
        position_slopes=draw(st.sampled_from([(), (0.5,) * heads])),
        position_reach=draw(st.integers(0, 5)),
        adaptive_span=spans,
        span_ramp=draw(st.integers(1, 5)),
        log_scale=not spans and draw(st.booleans()),
    )
    slots = draw(st.integers(0, config.memory_size))
    case = new_case(
        config, draw(st.integers(1, 5)), draw(st.integers(1, 9)), slots, draw(st.booleans()), draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )  # fmt: skip
    core = new_core(config, seed=draw(st.integers(0, 99)))
    loop = results(core, "loop", case)
    for row in engines():
        if row["name"] in ("fused", "native") and row["available"] == "yes":
            assert_same(results(core, row["name"], case), loop)


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("cut", [1, 4, 6])
def test_two_blocks_carried_without_a_cut_equal_one_under_autograd(engine: str, cut: int, resets: bool) -> None:
    core, case = new_core(SMALL), new_case(SMALL, resets=resets)
    assert_same(results(core, engine, case, cut), results(core, engine, case))
    assert_same(results(core, engine, case, cut), results(core, "loop", case))


def test_single_precision_is_near_the_loop(engine: str) -> None:
    config = changed(SMALL, model_dim=16, num_heads=2, head_dim=8)
    core, case = new_core(config, torch.float32), new_case(config, dtype=torch.float32)
    assert_same(results(core, engine, case), results(core, "loop", case), torch.float32)


def test_a_norm_gain_of_zero_has_its_gradient(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL)
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if "norm.weight" in name:
                parameter[::2] = 0
    assert_same(results(core, engine, case), results(core, "loop", case))


def test_frozen_weights_leave_the_gradient_of_the_input(engine: str) -> None:
    core, case = new_core(SMALL).requires_grad_(False), new_case(SMALL)
    assert_same(results(core, engine, case), results(core, "loop", case))


def test_inputs_that_are_not_contiguous_are_read_right(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL, resets=True)
    assert case.reset is not None
    strided = case._replace(
        x=case.x.transpose(0, 2).contiguous().transpose(0, 2),
        memory=case.memory.repeat_interleave(2, dim=2)[:, :, ::2],
        length=case.length.repeat_interleave(3)[::3],
        reset=case.reset.t().contiguous().t(),
    )
    assert not strided.x.is_contiguous()
    assert_same(results(core, engine, strided), results(core, "loop", case))


def test_an_expanded_output_gradient_is_read_right(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL)
    ones = case._replace(y_weight=torch.ones((), dtype=torch.float64).expand_as(case.y_weight))
    assert_same(results(core, engine, ones), results(core, "loop", ones))


def test_without_gradients_the_numbers_are_the_same(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL, resets=True)
    expected = results(core, engine, case)["y"]
    with torch.no_grad():
        y, state = core(case.x, MemoryState(case.memory[:, None], case.length), case.reset)
    assert not y.requires_grad
    assert not state.memory.requires_grad
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-13)


def test_steps_go_on_from_a_block(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL)
    core.engine = engine
    whole, _ = core(case.x)
    y, state = core(case.x[:, :-2])
    for t in (-2, -1):
        y, state = core.step(case.x[:, t], state)
        torch.testing.assert_close(y, whole[:, t], rtol=0, atol=1e-12)


def test_a_nan_stays_in_its_row_and_is_seen_there(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL)
    core.engine = engine
    case.x[1, 3, 2] = float("nan")
    x = case.x.requires_grad_()
    y, _ = core(x)
    assert y[1, 3:].isnan().all()
    assert y[[0, 2]].isfinite().all()
    assert y[1, :3].isfinite().all()
    y[[0, 2]].sum().backward()


def test_a_row_that_becomes_nan_and_begins_anew_in_the_same_block_recovers(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL)
    core.engine = engine
    case.x[1, 3, 2] = float("nan")
    again = torch.zeros(3, 7, dtype=torch.bool)
    again[1, 5] = again[2, 2] = True
    x = case.x.requires_grad_()
    y, state = core(x, None, again)
    following, _ = core(case.x.detach().nan_to_num(), state)
    alone, _ = core(x[1:2, 5:].detach())
    assert y[1, 3:5].isnan().all()
    torch.testing.assert_close(y[1:2, 5:], alone)
    assert following.isfinite().all()
    given = torch.autograd.grad(y[1, 5:].sum() + y[2].sum(), x)[0]
    assert given[[0, 2]].isfinite().all()


@pytest.mark.parametrize("first", ["block", "steps"])
def test_a_row_that_was_nan_and_begins_anew_counts_for_nothing(engine: str, first: str) -> None:
    """Its state is reset, or its first step is; what the state still holds must reach no output and no gradient."""
    core, case = new_core(SMALL), new_case(SMALL)
    core.engine = engine
    broken = case.x.clone()
    broken[1, 3, 2] = float("nan")
    with torch.no_grad():
        if first == "block":
            _, state = core(broken)
        else:
            state = None
            for t in range(broken.shape[1]):
                _, state = core.step(broken[:, t], state)
    assert state is not None
    again, rows = torch.zeros(3, 7, dtype=torch.bool), torch.tensor([False, True, False])
    again[1, 0] = True
    for other in (engine, "loop"):
        core.engine = other
        for begun, reset in ((state.reset(rows), None), *(((state, again),) if other == engine else ())):
            core.zero_grad()
            y, _ = core(case.x, begun, reset)
            y.sum().backward()
            assert y.isfinite().all()
            assert all(p.grad.isfinite().all() for p in core.parameters() if p.grad is not None)


def test_what_is_done_with_resets_after_a_block_does_not_change_its_gradients(engine: str) -> None:
    core, case = new_core(SMALL), new_case(SMALL, resets=True)
    core.engine = engine
    assert case.reset is not None
    found = []
    for value in (None, False, True):
        core.zero_grad()
        reset = case.reset.clone()
        y, _ = core(case.x, None, reset)
        if value is not None:
            reset.fill_(value)
        (y * case.y_weight).sum().backward()
        found.append([p.grad.clone() for p in core.parameters() if p.grad is not None])
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_output_can_be_changed_in_place(engine: str, norm: str) -> None:
    core, case = new_core(changed(SMALL, norm=norm)), new_case(SMALL)
    gradients = []
    for name in ("loop", engine):
        core.engine = name
        core.zero_grad()
        y, state = core(case.x)
        y += 1
        y_next, _ = core(case.x, state)
        (y * case.y_weight + y_next).sum().backward()
        gradients.append({n: p.grad.clone() for n, p in core.named_parameters() if p.grad is not None})
    assert_same(gradients[1], gradients[0])


# --------------------------------------------------------------------------------------- dropout


def dropped(config: ModelConfig, engine: str, case: Case, seed: int = 7) -> tuple[FeedbackTransformer, Tensor]:
    core = new_core(config)
    core.engine = engine
    torch.manual_seed(seed)
    return core, core(case.x, MemoryState(case.memory[:, None], case.length), case.reset)[0]


def test_the_same_random_state_gives_the_same_masks_and_another_gives_others(engine: str) -> None:
    config = changed(SMALL, dropout=0.3)
    case = new_case(config)
    _, first = dropped(config, engine, case)
    _, again = dropped(config, engine, case)
    _, other = dropped(config, engine, case, seed=8)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    core, _ = dropped(config, engine, case)
    one, two = core(case.x)[0], core(case.x)[0]
    assert not torch.allclose(one, two)  # a fresh mask every block
    core.eval()
    torch.testing.assert_close(core(case.x)[0], core(case.x)[0])


@pytest.mark.parametrize(
    ("norm", "shared", "base"), [("pre", True, SMALL), ("post", False, SMALL), ("pre", True, SPANS)]
)
def test_the_gradient_under_dropout_is_that_of_its_mask(
    engine: str, norm: str, shared: bool, base: ModelConfig
) -> None:
    """Central differences along random directions, the mask held by its seed."""
    config = changed(base, dropout=0.4, norm=norm, shared_kv=shared, position_slopes=(1.0, 0.1))
    case, core = new_case(config, resets=True, slots=config.memory_size), new_core(config)
    if config.adaptive_span:
        for span in with_spans(core, EXTENTS["mixed"]).stack.spans():
            span.extent.data += 0.013  # between two steps, where a mask has one slope
    core.engine = engine
    x, memory = case.x.requires_grad_(), case.memory.requires_grad_()
    leaves = [x, memory, *core.parameters()]

    def loss() -> Tensor:
        torch.manual_seed(3)
        y, state = core(x, MemoryState(memory[:, None], case.length), case.reset)
        return (y * case.y_weight).sum() + (state.memory[:, :, -1] * case.memory_weight[:, :, -1]).sum()

    gradients = torch.autograd.grad(loss(), leaves)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        direction = torch.randn(leaf.shape, dtype=leaf.dtype)
        with torch.no_grad():
            leaf += 1e-6 * direction
            above = loss()
            leaf -= 2e-6 * direction
            below = loss()
            leaf += 1e-6 * direction
        expected = (above - below) / 2e-6
        assert abs((gradient * direction).sum() - expected) <= 1e-6 * (1 + abs(expected))


@pytest.mark.parametrize("silent", ["feed_forward.contract", "attention.to_output"])
def test_dropout_drops_its_share_and_keeps_the_mean(engine: str, silent: str) -> None:
    """With one sublayer silent, one layer's output is linear in the other's mask."""
    config = changed(SMALL, num_layers=1, dropout=0.3)
    core = new_core(config)
    core.engine = engine
    with torch.no_grad():
        for parameter in core.stack.blocks[0].get_submodule(silent).parameters():
            parameter.zero_()
    core.stack.final_norm = torch.nn.Identity()
    case = new_case(config, batch=1, steps=1, slots=5, ragged=False)
    rows = 20_000
    state = MemoryState(case.memory[:, None].expand(rows, -1, -1, -1), case.length.expand(rows))
    torch.manual_seed(0)
    y, _ = core(case.x.expand(rows, -1, -1), state)
    expected, _ = core.eval()(case.x, MemoryState(case.memory[:, None], case.length))
    error = (y.mean(0) - expected[0]).abs()
    assert (error <= 5 * y.std(0) / rows**0.5 + 1e-12).all()
    assert y.std(0).max() > 0.01


# --------------------------------------------------------------------------------------- slow


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "span"), [(0.0, False), (0.3, False), (0.0, True)])
def test_compiled_steps_equal_the_loop(dropout: float, span: bool) -> None:
    config = changed(SMALL, dropout=dropout, position_slopes=(1.0, 0.1), adaptive_span=span, span_ramp=2)
    core = new_core(config)
    for slots, resets in ((0, False), (5, True)):
        case = new_case(config, slots=slots, resets=resets)
        if dropout:
            core.engine = "fused+compile"
            torch.manual_seed(0)
            once = core(case.x)[0]
            torch.manual_seed(0)
            torch.testing.assert_close(core(case.x)[0], once)
        else:
            assert_same(results(core, "fused+compile", case), results(core, "loop", case))
    assert counters["frames"]["ok"] > 0, "nothing was compiled"


@pytest.mark.slow
def test_ten_thousand_blocks_leave_nothing_behind(engine: str) -> None:
    config = changed(SMALL, dropout=0.1)
    core, case = new_core(config, torch.float32), new_case(config, steps=2, dtype=torch.float32)
    core.engine = engine

    def run(blocks: int) -> int:
        state = MemoryState(case.memory[:, None], case.length)
        for _ in range(blocks):
            y, state = core(case.x, state.detach())
            y.sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = run(1000)
    assert run(9000) - before < 8 * 1024  # kB
