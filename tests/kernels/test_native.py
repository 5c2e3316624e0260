"""The native engine against the step loop: the same outputs and the same gradients, or it is wrong."""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.kernels import native_build
from feedback_transformer.kernels.contract import BlockOptions, BlockWeights
from feedback_transformer.kernels.native import native_available, native_block
from feedback_transformer.kernels.native_decoding import PackedOnce, begin, native_step, pack_weights
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.memory import MemoryState

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}  # of |difference| / |expected|, as norms

pytestmark = pytest.mark.skipif(native_available() is not None, reason=str(native_available()))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The cores here are tiny: torch's threads would spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights_of(core: FeedbackTransformer) -> BlockWeights:
    stack = core.stack

    def stacked(modules: nn.ModuleList, name: str) -> Tensor:
        return torch.stack([module.get_parameter(name) for module in modules])

    pre_norm = core.config.norm == "pre"
    return BlockWeights(
        query=stacked(stack.blocks, "attention.to_query.weight"),
        output=stacked(stack.blocks, "attention.to_output.weight"),
        expand=stacked(stack.blocks, "feed_forward.expand.weight"),
        expand_bias=stacked(stack.blocks, "feed_forward.expand.bias"),
        contract=stacked(stack.blocks, "feed_forward.contract.weight"),
        contract_bias=stacked(stack.blocks, "feed_forward.contract.bias"),
        attention_gain=stacked(stack.blocks, "attention_norm.weight"),
        attention_shift=stacked(stack.blocks, "attention_norm.bias"),
        feed_forward_gain=stacked(stack.blocks, "feed_forward_norm.weight"),
        feed_forward_shift=stacked(stack.blocks, "feed_forward_norm.bias"),
        key=stacked(stack.key_values, "to_key.weight"),
        value=stacked(stack.key_values, "to_value.weight"),
        memory_gain=stacked(stack.key_values, "norm.weight") if pre_norm else None,
        memory_shift=stacked(stack.key_values, "norm.bias") if pre_norm else None,
        mixing=core.composition.mixing()[0],
        position=stack.position.keys,
        position_bias=stack.position.bias,
    )


def options_of(core: FeedbackTransformer, **changes: float) -> BlockOptions:
    return BlockOptions(core.config.num_heads, core.config.norm == "pre")._replace(**changes)


@dataclasses.dataclass
class Case:
    """A core and a block for it, in float64 unless told otherwise."""

    core: FeedbackTransformer
    x: Tensor
    memory: Tensor
    length: Tensor
    reset: Tensor | None

    def inputs(self) -> dict[str, Tensor]:
        parameters = {name: p for name, p in self.core.named_parameters() if "final_norm" not in name}
        return {"x": self.x, "memory": self.memory, **parameters}

    def native(self, **options: float) -> tuple[Tensor, Tensor]:
        return native_block(
            self.x, self.memory, self.length, self.reset, weights_of(self.core), options_of(self.core, **options)
        )

    def loop(self) -> tuple[Tensor, Tensor]:
        """The step loop of model/feedback.py, without the final norm, with the memory of every step."""
        bare = self.core
        final_norm, bare.stack.final_norm = bare.stack.final_norm, nn.Identity()
        state = MemoryState(self.memory[:, None], self.length)
        outputs, memories = [], []
        for t in range(self.x.shape[1]):
            state = state if self.reset is None else state.reset(self.reset[:, t])
            y, state = bare.step(self.x[:, t], state)
            outputs.append(y)
            memories.append(state.memory[:, 0, -1])
        bare.stack.final_norm = final_norm
        return torch.stack(outputs, dim=1), torch.stack(memories, dim=1)


def make_case(
    batch: int = 3,
    steps: int = 6,
    fill: int | None = None,
    rows_differ: bool = False,
    resets: bool = False,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **config: object,
) -> Case:
    torch.manual_seed(seed)
    defaults = {"num_layers": 2, "model_dim": 24, "num_heads": 3, "memory_size": 9, "ff_dim": 40}
    core = FeedbackTransformer(ModelConfig(**{**defaults, **config}))  # type: ignore[arg-type]
    core = core.to(dtype)
    with torch.no_grad():  # gains of exactly one and shifts of exactly zero would hide mistakes
        for parameter in core.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    fill = core.config.memory_size if fill is None else fill
    width = core.config.model_dim
    return Case(
        core,
        torch.randn(batch, steps, width, dtype=dtype, requires_grad=True),
        torch.randn(batch, fill, width, dtype=dtype, requires_grad=True),
        torch.randint(0, fill + 1, (batch,)) if rows_differ else torch.full((batch,), fill),
        torch.rand(batch, steps) < 0.2 if resets else None,
    )


def results(case: Case, outputs: tuple[Tensor, Tensor], seed: int = 1) -> dict[str, Tensor]:
    """Outputs, and the gradients of a random function of both."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for y in outputs]
    loss = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
    inputs = case.inputs()
    gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    named = {
        name: torch.zeros_like(inputs[name]) if g is None else g for name, g in zip(inputs, gradients, strict=True)
    }
    return {"y": outputs[0].detach(), "memories": outputs[1].detach(), **named}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    scale = max(float(e.norm()) for e in expected.values())
    for name, value in expected.items():
        error = float((found[name] - value).norm())
        # A gradient that is zero but for rounding is measured against the others.
        assert error <= tolerance * max(float(value.norm()), 1e-3 * scale), f"{name}: {error} of {float(value.norm())}"


def check(case: Case) -> None:
    assert_same(results(case, case.native()), results(case, case.loop()), TOLERANCE[case.x.dtype])


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


# ------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("shared_kv", [True, False])
def test_decoding_equals_the_loop_far_beyond_the_window(norm: str, shared_kv: bool) -> None:
    case = make_case(
        norm=norm, shared_kv=shared_kv, steps=200, fill=4, rows_differ=True, position_slopes=(1.0, 0.1, 0.0)
    )
    with torch.no_grad():
        expected, memories = case.loop()
        packed = pack_weights(weights_of(case.core), options_of(case.core))
        state = begin(case.memory, case.length, packed)
        for t in range(200):
            y, state = native_step(case.x[:, t], state, packed)
            torch.testing.assert_close(y, expected[:, t], rtol=0, atol=1e-10)
    torch.testing.assert_close(state.memory, memories[:, -9:], rtol=0, atol=1e-10)
    assert state.length.tolist() == [9, 9, 9]


def decode(case: Case, state: object, packed: object, steps: range) -> tuple[list[Tensor], object]:
    outputs = []
    for t in steps:
        y, state = native_step(case.x[:, t].detach(), state, packed)  # type: ignore[arg-type]
        outputs.append(y)
    return outputs, state


def test_an_older_state_stays_valid() -> None:
    case = make_case(steps=30)
    packed = pack_weights(weights_of(case.core), options_of(case.core))
    _, early = decode(case, begin(case.memory.detach(), case.length, packed), packed, range(10))
    first, _ = decode(case, early, packed, range(10, 30))
    decode(case, early, packed, range(3))  # another future of the same past
    again, _ = decode(case, early, packed, range(10, 30))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_decoding_state_can_be_reset_and_reordered() -> None:
    case = make_case(steps=12)
    packed = pack_weights(weights_of(case.core), options_of(case.core))
    _, state = decode(case, begin(case.memory.detach(), case.length, packed), packed, range(5))
    x = case.x[:, 5].detach()
    plain, _ = native_step(x, state, packed)  # type: ignore[arg-type]
    index = torch.tensor([2, 0, 0, 1])
    swapped, _ = native_step(x[index], state.reorder(index, packed), packed)  # type: ignore[attr-defined]
    torch.testing.assert_close(swapped, plain[index])
    anew, _ = native_step(x, state.reset(torch.tensor([True, False, False])), packed)  # type: ignore[attr-defined]
    fresh, _ = native_step(x, begin(case.memory[:, :0].detach(), torch.zeros(3), packed), packed)
    torch.testing.assert_close(anew[0], fresh[0])
    torch.testing.assert_close(anew[1:], plain[1:])


def test_decoding_can_start_from_keys_and_values() -> None:
    case = make_case()
    packed = pack_weights(weights_of(case.core), options_of(case.core))
    memory, x = case.memory.detach(), case.x[:, 0].detach()
    with torch.no_grad():
        projected = case.core.stack.project(memory[:, None])
    given, _ = native_step(x, begin(memory, case.length, packed, projected), packed)
    computed, _ = native_step(x, begin(memory, case.length, packed), packed)
    torch.testing.assert_close(given, computed)


def test_weights_are_packed_again_after_an_update_only() -> None:
    core = make_case().core
    once, made = PackedOnce(), []

    def make() -> tuple[BlockWeights, BlockOptions]:
        made.append(1)
        return weights_of(core), options_of(core)

    first = once.get(list(core.parameters()), make)
    assert once.get(list(core.parameters()), make) is first
    with torch.no_grad():
        core.stack.position.keys.add_(1.0)
    assert once.get(list(core.parameters()), make) is not first
    assert len(made) == 2


# ------------------------------------------------------------------------------------------- building


def run_python(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_missing_compiler_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    native_build.library.cache_clear()
    try:
        reason = native_build.native_available()
    finally:
        native_build.library.cache_clear()
    assert reason is not None
    assert "apt-get install g++" in reason


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEEDBACK_TRANSFORMER_CACHE", str(tmp_path / "file"))
    native_build.library.cache_clear()
    try:
        reason = native_build.native_available()
    finally:
        native_build.library.cache_clear()
    assert reason is not None
    assert "FEEDBACK_TRANSFORMER_CACHE" in reason


@pytest.mark.slow
def test_two_processes_can_build_at_once(tmp_path: Path) -> None:
    code = "from feedback_transformer.kernels.native_build import native_available; print(native_available())"
    both = [run_python(code, FEEDBACK_TRANSFORMER_CACHE=str(tmp_path)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert out.strip() == "None", err
        assert "building the native engine" in err
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_ten_thousand_blocks_do_not_leak() -> None:
    case = make_case(steps=4, batch=2, dtype=torch.float32)

    def blocks(count: int) -> int:
        for _ in range(count):
            case.native(dropout=0.1)[0].sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes

    before = blocks(1000)
    assert blocks(9000) - before < 4096
