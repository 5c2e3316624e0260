"""The native engine against the step loop: the same outputs and the same gradients, or it is wrong."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from feedback_transformer import FeedbackTransformer, ModelConfig
from feedback_transformer.kernels.contract import BlockOptions, BlockWeights
from feedback_transformer.kernels.native import native_block
from feedback_transformer.kernels.native_build import native_available
from tests.kernels.native_cases import assert_same, check, make_case, options_of, results, weights_of

pytestmark = pytest.mark.skipif(native_available() is not None, reason=str(native_available()))


def test_a_block_can_be_recomputed_in_backward() -> None:
    """torch's checkpointing compares sizes of what is kept, which must not depend on what the pool has at hand."""
    core = FeedbackTransformer(ModelConfig(num_layers=2, model_dim=16, num_heads=2, memory_size=8), "native")
    core(torch.randn(4, 40, 16))[0].sum().backward()
    x = torch.randn(4, 36, 16, requires_grad=True)
    y = checkpoint(lambda x: core(x)[0], x, use_reentrant=False)
    kept = core(torch.randn(4, 38, 16))[0]  # takes what the first one gave back
    (y.sum() + kept.sum()).backward()
    assert x.grad is not None
    again = x.detach().clone().requires_grad_()
    core(again)[0].sum().backward()
    torch.testing.assert_close(x.grad, again.grad)


def test_fake_tensors_are_refused() -> None:
    core = FeedbackTransformer(ModelConfig(num_layers=1, model_dim=16, num_heads=2, memory_size=8), "native")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = mode.from_tensor(torch.randn(2, 3, 16))
        with pytest.raises(ValueError, match="is a fake tensor, which has no memory"):
            core(x)
        with pytest.raises(ValueError, match="is a fake tensor, which has no memory"), torch.no_grad():
            core.step(x[:, 0])


# ------------------------------------------------------------------------------------------- equal to the loop


@pytest.mark.parametrize("memory", ["weighted-sum", "top", "layer:1", "average"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("shared_kv", [True, False])
def test_outputs_and_gradients_equal_the_loop(memory: str, norm: str, shared_kv: bool) -> None:
    check(make_case(memory=memory, norm=norm, shared_kv=shared_kv))


@pytest.mark.parametrize("shared_kv", [True, False])
@pytest.mark.parametrize("fill", [0, 1, 5, 9])
@pytest.mark.parametrize("steps", [1, 4, 25])
def test_any_fill_and_any_block_length_around_the_window(fill: int, steps: int, shared_kv: bool) -> None:
    check(make_case(fill=fill, steps=steps, shared_kv=shared_kv, rows_differ=True))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("steps", [6, 40])
def test_rows_that_begin_anew_inside_the_block(norm: str, steps: int) -> None:
    check(make_case(batch=4, steps=steps, resets=True, rows_differ=True, norm=norm, position_slopes=(1.0, 0.1, 0.3)))


@pytest.mark.parametrize("head_dim", [1, 5, 8, 16, 24, 64])
def test_any_head_width(head_dim: int) -> None:
    check(make_case(head_dim=head_dim, memory_size=19))


@pytest.mark.parametrize("model_dim", [1, 3, 17, 33, 64])
def test_widths_that_are_no_multiple_of_the_vector(model_dim: int) -> None:
    check(make_case(model_dim=model_dim, head_dim=7, ff_dim=model_dim + 2, resets=True))


@pytest.mark.parametrize("batch", [1, 2, 7, 31])
def test_any_batch(batch: int) -> None:
    check(make_case(batch=batch, rows_differ=True))


def test_a_learned_position_bias_gets_its_gradient() -> None:
    check(make_case(position_slopes=(2.0, 0.5, 0.1), fill=4))


def test_many_layers_and_steps_cross_the_chunks_of_backward() -> None:
    check(make_case(num_layers=7, steps=40, batch=2, memory_size=13))
    check(make_case(num_layers=7, steps=40, batch=2, memory_size=50, shared_kv=False))


@pytest.mark.parametrize("shared_kv", [True, False])
def test_float32_is_close_to_the_loop(shared_kv: bool) -> None:
    check(make_case(dtype=torch.float32, model_dim=64, num_heads=2, memory_size=30, steps=20, shared_kv=shared_kv))


def test_non_contiguous_inputs() -> None:
    case = make_case()
    expected = results(case, case.loop())
    case_inputs = [t.detach().transpose(0, 1).contiguous().transpose(0, 1) for t in (case.x, case.memory)]
    x, memory = (t.requires_grad_() for t in case_inputs)
    assert not x.is_contiguous()
    again = dataclasses.replace(case, x=x, memory=memory)
    assert_same(results(again, again.native()), expected, 1e-11)


def test_without_gradients_the_outputs_are_the_same() -> None:
    case = make_case(steps=30, resets=True)
    with torch.no_grad():
        plain = case.native()
    for found, expected in zip(plain, case.native(), strict=True):
        assert torch.equal(found, expected)


def test_two_backward_passes_through_one_forward_agree() -> None:
    case = make_case()
    y, _ = case.native()
    first = torch.autograd.grad(y.sum(), case.x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), case.x)[0])


def test_memory_that_needs_no_gradient_gets_none_and_changes_nothing_else() -> None:
    case = make_case()
    with_memory = torch.autograd.grad(case.native()[0].sum(), [case.x, *case.core.parameters()], allow_unused=True)
    case.memory.requires_grad_(False)
    without = torch.autograd.grad(case.native()[0].sum(), [case.x, *case.core.parameters()], allow_unused=True)
    for a, b in zip(with_memory, without, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_random_configurations(data: st.DataObject) -> None:
    draw = data.draw
    heads = draw(st.integers(1, 4), "heads")
    layers = draw(st.integers(1, 4), "layers")
    window = draw(st.integers(1, 20), "window")
    check(
        make_case(
            batch=draw(st.integers(1, 14), "batch"),
            steps=draw(st.integers(1, 24), "steps"),
            fill=draw(st.integers(0, window), "fill"),
            rows_differ=draw(st.booleans(), "rows differ"),
            resets=draw(st.booleans(), "resets"),
            seed=draw(st.integers(0, 99), "seed"),
            num_heads=heads,
            num_layers=layers,
            memory_size=window,
            model_dim=draw(st.integers(2, 40), "width"),
            head_dim=draw(st.integers(1, 34), "head width"),
            ff_dim=draw(st.integers(1, 70), "inner width"),
            norm=draw(st.sampled_from(["pre", "post"]), "norm"),
            shared_kv=draw(st.booleans(), "shared"),
            memory=draw(st.sampled_from(["weighted-sum", "top", "layer:0", "average"]), "memory"),
            position_slopes=(0.5,) * heads if draw(st.booleans(), "bias") else (),
        )
    )


# ------------------------------------------------------------------------------------------- dropout


def test_backward_of_dropout_is_the_slope_of_forward_at_the_same_masks() -> None:
    case = make_case(steps=12, batch=2, norm="pre", position_slopes=(1.0, 0.2, 0.1))
    options = {"dropout": 0.3, "seed": 5}
    y, memories = case.native(**options)
    loss = (y.sin().sum() + memories.cos().sum()).item()
    inputs = case.inputs()
    gradients = torch.autograd.grad(y.sin().sum() + memories.cos().sum(), list(inputs.values()))
    generator = torch.Generator().manual_seed(3)
    for (name, value), gradient in zip(inputs.items(), gradients, strict=True):
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        step = 1e-6
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                value += sign * step * direction
                y, memories = case.native(**options)
                sides.append((y.sin().sum() + memories.cos().sum()).item())
                value -= sign * step * direction
        slope = (sides[0] - sides[1]) / (2 * step)
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-6), (name, loss)


def test_the_same_seed_gives_the_same_masks_and_another_seed_others() -> None:
    case = make_case()
    first, again, other = (case.native(dropout=0.2, seed=seed)[0] for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def one_layer_that_shows_its_masks(dropout: float, seed: int) -> tuple[Tensor, Tensor]:
    """Kept shares [B, T, D] of the attention probabilities, and of the ReLU's units, seen through chosen weights."""
    batch, steps, width, window = 16, 64, 8, 50
    zero, eye = torch.zeros, torch.eye(width)
    weights = BlockWeights(
        query=zero(1, width, width),
        output=eye[None],
        expand=zero(1, width, width),
        expand_bias=torch.ones(1, width),
        contract=eye[None],
        contract_bias=zero(1, width),
        attention_gain=torch.ones(1, width),
        attention_shift=zero(1, width),
        feed_forward_gain=torch.ones(1, width),
        feed_forward_shift=zero(1, width),
        key=zero(1, width, width),
        value=zero(1, width, width),
        memory_gain=zero(1, width),
        memory_shift=torch.ones(1, width),
        mixing=zero(2),
        position=zero(4, window),
        position_bias=None,
    )
    x, memory = zero(batch, steps, width), torch.randn(batch, window, width)
    length = torch.full((batch,), window)
    options = BlockOptions(2, True, dropout, seed)
    hidden, _ = native_block(x, memory, length, None, weights, options)
    weights = weights._replace(value=torch.ones(1, width, width) / width, contract=zero(1, width, width))
    mixed, _ = native_block(x, memory, length, None, weights, options)
    return mixed, hidden


def test_dropout_keeps_the_right_share_and_the_mean() -> None:
    mixed, hidden = one_layer_that_shows_its_masks(0.2, seed=3)
    kept = (hidden > 0).float().mean()  # 8192 units: a standard error of 0.0044
    assert float(kept) == pytest.approx(0.8, abs=0.02)
    assert float(hidden.max()) == pytest.approx(1.25)
    heads = mixed[..., ::4]  # each head's kept share of 50 slots, over 0.8: 102400 slots
    assert float(heads.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(heads.var()) == pytest.approx(0.25 / 50, rel=0.1)  # slots are dropped one by one


def test_masks_of_rows_steps_and_heads_are_unrelated() -> None:
    mixed, hidden = one_layer_that_shows_its_masks(0.5, seed=3)
    units = (hidden > 0).double().flatten(1) - 0.5
    assert float(torch.corrcoef(units).fill_diagonal_(0).abs().max()) < 0.25  # rows, 512 units each
    heads = mixed[..., ::4].double().flatten(0, 1)
    assert abs(float(torch.corrcoef(heads.T)[0, 1])) < 0.1


# ------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("batch", [1, 2, 31])
def test_more_threads_give_the_same_numbers(batch: int) -> None:
    case = make_case(batch=batch, resets=True, dtype=torch.float32)
    outputs, gradients = {}, {}
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        outputs[threads] = case.native(dropout=0.2, seed=1)
        gradients[threads] = results(case, outputs[threads])
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(outputs[1], outputs[threads], strict=True))
        assert_same(gradients[threads], gradients[1], 1e-5)


# ------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_in_gives_nan_out_in_that_row_only(dtype: torch.dtype) -> None:
    case = make_case(dtype=dtype)
    with torch.no_grad():
        case.x[1, 2, 0] = float("nan")
    y, memories = case.native()
    assert y[1, 2:].isnan().all()
    assert memories[1, 2:].isnan().all()
    assert y[0].isfinite().all()
    assert y[1, :2].isfinite().all()
    assert results(case, (y, memories))["x"][1].isnan().any()


def test_a_nan_weight_is_not_hidden_by_the_relu() -> None:
    case = make_case(dtype=torch.float32)
    with torch.no_grad():
        case.core.stack.blocks[0].get_parameter("feed_forward.expand.bias")[3] = float("nan")
    assert case.native()[0].isnan().all()


def test_scores_far_apart_do_not_overflow() -> None:
    case = make_case(dtype=torch.float32)
    with torch.no_grad():
        case.core.stack.position.keys *= 1e4
    assert all(value.isfinite().all() for value in results(case, case.native()).values())


def test_bad_arguments_are_named() -> None:
    case = make_case(dtype=torch.float32)
    weights, options = weights_of(case.core), options_of(case.core)
    x, memory, length = case.x, case.memory, case.length

    def message(**changes: object) -> str:
        arguments = {"x": x, "memory": memory, "length": length, "reset": None, "weights": weights, "options": options}
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            native_block(**{**arguments, **changes})  # type: ignore[arg-type]
        return str(caught.value)

    assert "float16" in message(x=x.half())
    assert "at least one step" in message(x=x[:, :0])
    assert "memory must be" in message(memory=torch.zeros(3, 99, 24))
    assert "memory is torch.float64" in message(memory=memory.double())
    assert "length must be" in message(length=length[:2])
    assert "reset must be" in message(reset=torch.zeros(3, 2, dtype=torch.bool))
    assert "expand_bias must be (2, 40)" in message(weights=weights._replace(expand_bias=torch.zeros(2, 41)))
    assert "heads" in message(options=options._replace(num_heads=5))
    assert "dropout" in message(options=options._replace(dropout=1.0))
    assert "pre-norm" in message(weights=weights._replace(memory_gain=None))
