"""What torch's users do to a module: other devices, autocast, torch.func, forward mode, global hooks, compile."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook

from feedback_transformer import ConfigError, FeedbackTransformer, LanguageModel, ModelConfig
from feedback_transformer.decoding.sampling import Sampling, generate
from feedback_transformer.model.cores import CORES

CONFIG = ModelConfig(num_layers=2, model_dim=16, num_heads=2, memory_size=4)


def make(kind: str = "feedback", **fields: object) -> nn.Module:
    torch.manual_seed(0)
    return CORES[kind](ModelConfig(**{**vars(CONFIG), "core": kind, **fields})).double().eval()


def block(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, dtype=torch.float64)


@pytest.mark.parametrize("kind", CORES)
def test_what_is_no_block_or_step_is_a_sentence(kind: str) -> None:
    core = make(kind)
    for x in (block(2, 0), block(0, 2), block(2), block(2, 3)[..., :8]):
        with pytest.raises(ValueError, match=r"x must be \[B, T, 16\] with at least one row and one step; it is \("):
            core(x)
    with pytest.raises(ValueError, match=r"reset must be \(2, 3\) of torch.bool, one for each row"):
        core(block(2, 3), None, torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"it is \(2, 3\) of torch.int64"):
        core(block(2, 3), None, torch.zeros(2, 3, dtype=torch.long))
    state = core(block(2, 1))[1]
    for rows in (torch.tensor([True]), torch.tensor([[True], [False]]), torch.tensor([0.0, 1.0]), [True, False]):
        with pytest.raises(ValueError, match=r"rows to reset must be a tensor \(2,\) of torch.bool, one for each row"):
            state.reset(rows)
    with pytest.raises(ValueError, match="the state has 2 rows and x has 3; continue with as many"):
        core(block(3, 1), state)
    other = make("lstm" if kind != "lstm" else "feedback")
    with pytest.raises(ValueError, match=r"the state is a \w+State, of another core; this one goes on from a"):
        other(block(2, 1), state)
    with torch.no_grad(), pytest.raises(ValueError, match="at least one row"):
        core.step(block(0))


@pytest.mark.parametrize("grad", [True, False])
def test_a_state_of_another_composition_is_a_sentence(grad: bool) -> None:
    state = make(memory="recurrent", shared_kv=False)(block(2, 3))[1]
    with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="the state has 2 memories per step, and this"):
        make().step(block(2, 1)[:, 0], state)


@pytest.mark.parametrize("engine", ["native", "fused", "loop"])
def test_a_model_or_state_left_on_another_device_is_an_error(engine: str) -> None:
    """meta stands for an accelerator; the native engine reads addresses, which would end the process."""
    core, x = make(), block(2, 3)
    core.engine = engine
    _, state = core(x)
    away = copy.deepcopy(core).to("meta")
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for call in (
                lambda: core(x, state.to("meta")),
                lambda: core.step(x[:, 0], state.to("meta")),
                lambda: away(x),
                lambda: away.step(x[:, 0]),
            ):
                with pytest.raises((ValueError, RuntimeError), match=r"device"):
                    call()


@pytest.mark.parametrize("kind", ["feedback", "transformer"])
@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize("grad", [True, False])
def test_a_state_stepped_under_autocast_goes_on_without_it_and_back(kind: str, engine: str, grad: bool) -> None:
    core = CORES[kind](ModelConfig(**{**vars(CONFIG), "core": kind}))
    core.engine = engine
    x = torch.randn(6, 3, 16)
    state = None
    with torch.set_grad_enabled(grad):
        for t, low in enumerate((True, True, False, False, True, False)):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                y, state = core.step(x[t], state)
        whole, _ = core(x.transpose(0, 1))
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, whole[:, -1], atol=0.1, rtol=0.1)


TRANSFORMER = {"memory": "previous-layer"}  # whose own core has first derivatives only, docs/engines.md


@pytest.mark.parametrize("fields", [{}, TRANSFORMER])
def test_torch_func_sees_the_gradients_of_autograd(fields: dict[str, str]) -> None:
    core, x = make(**fields), block(2, 3)
    grads = torch.func.grad(lambda x: core(x)[0].square().sum())(x)
    y = core(x.requires_grad_())[0].square().sum()
    torch.testing.assert_close(grads, torch.autograd.grad(y, x)[0])


@pytest.mark.parametrize("fields", [{}, TRANSFORMER])
def test_forward_mode_has_the_tangents_that_backward_has(fields: dict[str, str]) -> None:
    core, x, towards = make(**fields).requires_grad_(False), block(2, 3), block(2, 3)
    for run in (lambda x: core(x)[0], lambda x: core.step(x[:, 1], core.step(x[:, 0])[1])[0]):
        with torch.no_grad(), forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(run(forward_ad.make_dual(x, towards))).tangent
        y = run(x.requires_grad_()).sum()
        expected = (torch.autograd.grad(y, x)[0] * towards).sum()
        assert tangent is not None
        torch.testing.assert_close(tangent.sum(), expected)


def test_an_engine_that_is_asked_for_says_that_it_knows_no_torch_func() -> None:
    core = make()
    core.engine = "native"
    with pytest.raises(ConfigError, match=r"'native' does not cover torch.func and forward-mode differentiation"):
        torch.func.vmap(lambda x: core(x)[0])(block(3, 2, 4))


def test_second_derivatives_by_the_loop() -> None:
    core, x = make(), block(1, 2).requires_grad_()
    core.engine = "loop"
    assert torch.autograd.gradgradcheck(lambda x: core(x)[0].square().sum(), x)


def test_hooks_for_all_modules_are_called_inside_the_core() -> None:
    core, x, seen = make(), block(2), set()
    with torch.no_grad():
        _, state = core.step(x)
        handle = register_module_forward_hook(lambda module, *_: seen.add(type(module).__name__))
        try:
            core.step(x, state)
            assert "Linear" in seen
            seen.clear()
            core(x[:, None])
            assert "Linear" in seen
        finally:
            handle.remove()


@torch.no_grad()
def test_dropout_that_is_switched_on_in_mid_stream_drops() -> None:
    core, x = make(dropout=0.5), block(2)
    _, state = core.step(x)
    for part in core.modules():
        if isinstance(part, nn.Dropout):
            part.train()
    assert not torch.equal(core.step(x, state)[0], core.step(x, state)[0])


@torch.no_grad()
def test_a_norm_whose_epsilon_changes_in_mid_stream_computes_with_it() -> None:
    core, x = make(), block(2)
    _, state = core.step(x)
    core.stack.blocks[0].attention_norm.eps = 1.0
    y, _ = core.step(x, state)
    core.engine = "loop"
    torch.testing.assert_close(y, core.step(x, state.detach())[0])


def test_tokens_of_another_shape_are_a_sentence() -> None:
    model = LanguageModel(CONFIG, vocab_size=5)
    with pytest.raises(ValueError, match=r"tokens must be \[B, T\]; they are \[3\]"):
        model(torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"tokens must be \[B\]; they are \[1, 2\]"):
        model.step(torch.tensor([[1, 2]]))
    with pytest.raises(ConfigError, match=r"prompts must be \[B, n\] with at least one token; they are \[2\]"):
        next(generate(model, torch.tensor([1, 2]), Sampling()))


@pytest.mark.parametrize("kind", ["feedback", "transformer"])
@pytest.mark.parametrize("engine", ["native", "fused", "loop"])
def test_slots_that_a_reset_has_emptied_are_zero_after_a_block(kind: str, engine: str) -> None:
    core, x, reset = make(kind), block(2, 3), torch.tensor([[False, False, True], [False, False, False]])
    core.engine = engine
    _, state = core(x, None, reset)
    by_rows = [core(x[:1, 2:])[1].memory[0], core(x[1:])[1].memory[0]]
    torch.testing.assert_close(state.memory[0, :, 2:], by_rows[0])
    assert not state.memory[0, :, :2].any()
    torch.testing.assert_close(state.memory[1], by_rows[1])


def test_the_step_loop_compiles_into_one_graph() -> None:
    core, x = make(), block(2, 3)
    core.engine = "loop"
    explained = torch._dynamo.explain(core)(x)
    assert explained.graph_break_count == 0, explained.break_reasons


def test_a_saved_state_is_as_large_as_its_content_and_states_can_be_compared() -> None:
    core, x, state = make(), block(60, 2), None
    with torch.no_grad():
        for t in range(60):
            _, state = core.step(x[t], state)
    file = io.BytesIO()
    torch.save(state, file)
    assert len(file.getvalue()) < 2 * state.memory.nbytes + 2048
    assert state == state
    assert state != copy.deepcopy(state)


def test_a_bias_that_is_a_view_is_read_as_it_is() -> None:
    model = LanguageModel(CONFIG, vocab_size=20_000).eval()
    model.head.bias = nn.Parameter(torch.randn(40_000)[::2])
    token = torch.tensor([3])
    expected = model.step(token)[0]
    with torch.no_grad():
        torch.testing.assert_close(model.step(token)[0], expected, atol=1e-4, rtol=1e-4)


def test_a_core_drops_into_a_module_by_its_contract() -> None:
    from feedback_transformer import Core, State

    def run(core: Core, x: Tensor) -> Tensor:
        y, state = core.forward(x)
        carried: State = state.detach().reset(torch.tensor([True, False])).reorder(torch.tensor([1, 0])).to("cpu")
        assert carried.tensors()
        return y + core.step(x[:, 0], carried)[0][:, None]

    for kind in CORES:
        core = make(kind)
        assert run(core, block(2, 3)).shape == (2, 3, 16)
    assert isinstance(make(), FeedbackTransformer)


@pytest.mark.parametrize("core", ["feedback", "transformer", "lstm"])
def test_adaptive_input_and_softmax_work_under_autocast(core: str) -> None:
    model = LanguageModel(ModelConfig(core=core, num_layers=1, model_dim=16, num_heads=2, cutoffs=(4, 8)), 12)
    tokens = torch.randint(12, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = model.losses(tokens, tokens)
    losses.sum().backward()
    wide, _ = model.losses(tokens, tokens)
    torch.testing.assert_close(losses.float(), wide, atol=0.2, rtol=0.1)
    assert all(parameter.grad is not None for parameter in model.embedding.parameters())
