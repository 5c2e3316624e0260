"""What holds for every core: `forward` is `step` repeated, however a stream is cut, and rows are strangers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.model.cores import EXACT, VARIANTS, inputs, make_core

ATTENTION = [name for name in VARIANTS if name != "lstm"]


@pytest.fixture(params=VARIANTS)
def core(request: pytest.FixtureRequest, device: torch.device) -> nn.Module:
    return make_core(device, **VARIANTS[request.param])


def by_steps(core: nn.Module, x: Tensor) -> Tensor:
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = core.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def by_blocks(core: nn.Module, x: Tensor, sizes: list[int], detach: bool = False) -> Tensor:
    state, outputs = None, []
    for block in x.split(sizes, dim=1):
        y, state = core(block, state)
        state = state.detach() if detach else state
        outputs.append(y)
    return torch.cat(outputs, dim=1)


def test_forward_equals_step_looped(core: nn.Module, device: torch.device) -> None:
    x = inputs(device)
    torch.testing.assert_close(core(x)[0], by_steps(core, x), **EXACT)


@pytest.mark.parametrize("sizes", [[4, 9], [6, 1, 6]])
@pytest.mark.parametrize("detach", [False, True])
def test_any_cut_of_a_stream_gives_the_outputs_of_one_pass(
    core: nn.Module, device: torch.device, sizes: list[int], detach: bool
) -> None:
    x = inputs(device)
    torch.testing.assert_close(by_blocks(core, x, sizes, detach), core(x)[0], **EXACT)


def test_gradients_flow_through_a_state_that_was_not_detached(core: nn.Module, device: torch.device) -> None:
    x = inputs(device, steps=7).requires_grad_()
    (whole,) = torch.autograd.grad(core(x)[0].square().sum(), x)
    (cut,) = torch.autograd.grad(by_blocks(core, x, [3, 1, 3]).square().sum(), x)
    torch.testing.assert_close(cut, whole, **EXACT)


def test_no_output_sees_the_future(core: nn.Module, device: torch.device) -> None:
    x = inputs(device)
    changed = x.clone()
    changed[:, 6:] = inputs(device)[:, 6:]
    before, after = core(x)[0], core(changed)[0]
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6], after[:, 6])


def test_a_reset_row_is_a_fresh_stream_and_its_neighbours_do_not_notice(core: nn.Module, device: torch.device) -> None:
    x = inputs(device)
    whole, _ = core(x)
    _, state = core(x[:, :6])
    rows = torch.tensor([False, True, False], device=device)
    after, _ = core(x[:, 6:], state.reset(rows))
    torch.testing.assert_close(after[[0, 2]], whole[[0, 2], 6:], **EXACT)
    torch.testing.assert_close(after[1], core(x[1:2, 6:])[0][0], **EXACT)


def test_resets_inside_a_block_equal_resets_between_blocks(core: nn.Module, device: torch.device) -> None:
    x = inputs(device)
    reset = torch.zeros(3, 13, dtype=torch.bool, device=device)
    reset[0, 0] = reset[1, 4] = reset[1, 9] = reset[2, 12] = True
    inside, end = core(x, None, reset)
    state, outputs = None, []
    for t in range(13):
        state = state if state is None else state.reset(reset[:, t])
        y, state = core.step(x[:, t], state)
        outputs.append(y)
    torch.testing.assert_close(inside, torch.stack(outputs, dim=1), **EXACT)
    more = inputs(device, steps=3)
    torch.testing.assert_close(core(more, end)[0], core(more, state)[0], **EXACT)


def test_reordered_rows_give_reordered_outputs(core: nn.Module, device: torch.device) -> None:
    x, more = inputs(device, steps=6), inputs(device, steps=4)
    index = torch.tensor([2, 0, 0], device=device)
    _, state = core(x)
    reordered, _ = core(more[index], state.reorder(index))
    torch.testing.assert_close(reordered, core(more, state)[0][index], **EXACT)


def test_a_state_moves_and_is_saved_and_loaded_without_loss(core: nn.Module, device: torch.device) -> None:
    x, more = inputs(device, steps=6), inputs(device, steps=4)
    _, state = core(x)
    expected, _ = core(more, state)
    loaded = type(state).from_tensors({name: t.cpu() for name, t in state.tensors().items()}).to(device)
    torch.testing.assert_close(core(more, loaded)[0], expected, **EXACT)
    torch.testing.assert_close(core(more, state.to(device))[0], expected, **EXACT)


def test_an_old_state_can_be_used_again(core: nn.Module, device: torch.device) -> None:
    x, more = inputs(device, steps=6), inputs(device, steps=4)
    _, state = core(x)
    first, _ = core(more, state)
    second, _ = core(more, state)
    assert torch.equal(first, second)


@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (1, 7), (4, 1)])
def test_a_batch_of_one_and_a_block_of_one_work(core: nn.Module, device: torch.device, batch: int, steps: int) -> None:
    x = inputs(device, batch, steps)
    y, state = core(x)
    assert y.shape == x.shape
    assert core.step(x[:, 0], state)[0].shape == (batch, 12)


def test_rows_do_not_depend_on_their_neighbours(core: nn.Module, device: torch.device) -> None:
    x = inputs(device)
    torch.testing.assert_close(core(x)[0][1:2], core(x[1:2])[0], **EXACT)


@pytest.mark.parametrize("name", [name for name in ATTENTION if "spans" not in name])
def test_only_the_last_memory_size_memories_are_seen(name: str, device: torch.device) -> None:
    """One layer, so that nothing older can reach on through younger steps."""
    fields = {**VARIANTS[name], "num_layers": 1}
    if fields["core"] == "feedback" and fields.get("memory") != "previous-layer":
        fields["memory"] = "layer:0"  # memories of the inputs alone: no chain through the memory
    core = make_core(device, **fields)
    x = inputs(device)
    older, oldest_seen = x.clone(), x.clone()
    older[:, 12 - 5 - 1] = inputs(device)[:, 0]
    oldest_seen[:, 12 - 5] = inputs(device)[:, 0]
    last = core(x)[0][:, 12]
    assert torch.equal(core(older)[0][:, 12], last)
    assert not torch.allclose(core(oldest_seen)[0][:, 12], last)


@pytest.mark.parametrize("name", ATTENTION)
def test_memory_stays_within_the_window(name: str, device: torch.device) -> None:
    core = make_core(device, **VARIANTS[name])
    _, state = core(inputs(device))
    assert state.memory.shape[2] == 5
    assert state.length.tolist() == [5, 5, 5]


@pytest.mark.parametrize("name", ATTENTION)
def test_with_nothing_to_attend_to_the_attention_output_is_zero(name: str, device: torch.device) -> None:
    """Then the first step of a stream is what it would be without any key, value or position."""
    core = make_core(device, **VARIANTS[name])
    x = inputs(device, steps=1)
    first, _ = core(x)
    with torch.no_grad():
        for block in core.stack.blocks:
            block.attention.to_output.weight.zero_()
    torch.testing.assert_close(first, core(x)[0], **EXACT)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient_in_a_block_after_the_first(name: str, device: torch.device) -> None:
    core = make_core(device, **VARIANTS[name])
    _, state = core(inputs(device))
    core(inputs(device), state.detach())[0].square().sum().backward()
    without = [n for n, p in core.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not without


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_is_in_the_graph_even_when_the_memory_is_empty(name: str, device: torch.device) -> None:
    """Data-parallel training needs a gradient, if only zeros, for every parameter."""
    core = make_core(device, **VARIANTS[name])
    core(inputs(device, steps=2))[0].square().sum().backward()
    assert not [n for n, p in core.named_parameters() if p.grad is None]
