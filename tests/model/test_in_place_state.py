"""Without gradients a step writes into free slots behind its state's windows; nobody may notice."""

from __future__ import annotations

import copy

import pytest
import torch

from feedback_transformer import FeedbackTransformer, ModelConfig, Transformer

CONFIG = ModelConfig(num_layers=2, model_dim=8, num_heads=2, memory_size=4, shared_kv=False)


@pytest.fixture(params=["loop", "auto", "transformer"])
def core(request: pytest.FixtureRequest) -> FeedbackTransformer | Transformer:
    torch.manual_seed(0)
    if request.param == "transformer":
        return Transformer(CONFIG).double()
    return FeedbackTransformer(CONFIG, engine=request.param).double()


def test_steps_without_gradients_equal_steps_with_them(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 15, 8, dtype=torch.float64)
    state = quiet_state = None
    for t in range(15):  # over several rooms
        y, state = core.step(x[:, t], state)
        with torch.no_grad():
            quiet, quiet_state = core.step(x[:, t], quiet_state)
        torch.testing.assert_close(quiet, y, rtol=0, atol=1e-13)
        torch.testing.assert_close(quiet_state.memory, state.memory, rtol=0, atol=1e-13)


@torch.no_grad()
def test_two_futures_of_one_state_do_not_meet(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 8, 8, dtype=torch.float64)
    _, state = core.step(x[:, 0])
    _, state = core.step(x[:, 1], state)
    before = state.memory.clone()
    _, one = core.step(x[:, 2], state)
    _, other = core.step(x[:, 3], state)
    assert torch.equal(state.memory, before)
    y_one, one = core.step(x[:, 4], one)
    y_other, other = core.step(x[:, 4], other)
    whole, _ = core(x[:, [0, 1, 2, 4]])
    torch.testing.assert_close(y_one, whole[:, -1], rtol=0, atol=1e-13)
    whole, _ = core(x[:, [0, 1, 3, 4]])
    torch.testing.assert_close(y_other, whole[:, -1], rtol=0, atol=1e-13)


def test_steps_do_not_disturb_a_graph_that_waits_for_its_backward(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    with torch.no_grad():
        _, state = core.step(x[:, 0])
        _, state = core.step(x[:, 1], state)
    y, _ = core(x, state)
    with torch.no_grad():
        core.step(x[:, 2], state)
    y.sum().backward()


def test_a_state_of_inference_mode_can_be_stepped_outside_of_it(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    with torch.inference_mode():
        _, state = core.step(x[:, 0])
        _, state = core.step(x[:, 1], state)
    with torch.no_grad():
        y, _ = core.step(x[:, 2], state)
    torch.testing.assert_close(y, core(x)[0][:, 2], rtol=0, atol=1e-13)


@torch.no_grad()
def test_rows_can_be_reset_and_reordered_between_steps(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    state = None
    for t in range(6):
        _, state = core.step(x[:, t], state)
    order, rows = torch.tensor([2, 0, 0]), torch.tensor([False, True, False])
    y, _ = core.step(x[:, 6], state.reorder(order).reset(rows))
    mixed = torch.cat([x[order][:, :6], x[:, 6:]], dim=1)
    torch.testing.assert_close(y[[0, 2]], core(mixed)[0][[0, 2], -1], rtol=0, atol=1e-13)
    torch.testing.assert_close(y[1], core.step(x[:, 6])[0][1], rtol=0, atol=1e-13)


@torch.no_grad()
def test_steps_follow_a_change_of_the_weights(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 3, 8, dtype=torch.float64)
    _, state = core.step(x[:, 0])
    before, _ = core.step(x[:, 1], state)
    core.stack.blocks[0].feed_forward.contract.bias.normal_()
    after, _ = core.step(x[:, 1], state)
    assert not torch.allclose(before, after)
    with torch.enable_grad():
        expected, _ = core.step(x[:, 1], state)
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-13)


@torch.no_grad()
def test_blocks_go_on_from_steps(core: FeedbackTransformer) -> None:
    x = torch.randn(3, 9, 8, dtype=torch.float64)
    state = None
    for t in range(6):
        _, state = core.step(x[:, t], state)
    y, _ = core(x[:, 6:], state)
    torch.testing.assert_close(y, core(x)[0][:, 6:], rtol=0, atol=1e-13)
    assert torch.equal(copy.deepcopy(core)(x)[0], core(x)[0])
