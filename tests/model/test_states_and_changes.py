"""What a state is worth after something else has changed: weights, number type, model, hooks, dropout."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from feedback_transformer import FeedbackTransformer, ModelConfig
from feedback_transformer.model.cores import CORES
from feedback_transformer.model.memory import Composition, MemoryState

CONFIG = ModelConfig(num_layers=2, model_dim=16, num_heads=2, memory_size=6)


def fresh(seed: int = 0) -> FeedbackTransformer:
    torch.manual_seed(seed)
    return FeedbackTransformer(CONFIG).eval()


def stepped(core: FeedbackTransformer, steps: int = 4) -> tuple[torch.Tensor, object]:
    torch.manual_seed(9)
    x, state = torch.randn(steps + 1, 3, 16), None
    with torch.no_grad():
        for t in range(steps):
            _, state = core.step(x[t], state)
    return x[steps], state


def by_block(core: FeedbackTransformer, x: torch.Tensor, state: object) -> torch.Tensor:
    """The truth: the next step from the plain memories."""
    core.engine = "loop"
    y, _ = core(x[:, None], state.detach())
    core.engine = "auto"
    return y[:, 0]


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "in place": lambda core: [p.mul_(2) for p in core.parameters()],
    "an optimizer": lambda core: torch.optim.SGD(core.parameters(), lr=1.0).step(),
    "load_state_dict": lambda core: core.load_state_dict(fresh(5).state_dict()),
    "load_state_dict, assigned": lambda core: core.load_state_dict(fresh(5).state_dict(), assign=True),
    "through .data": lambda core: [p.data.mul_(2) for p in core.parameters()],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_step_after_a_change_of_weights_uses_the_new_ones(name: str) -> None:
    core = fresh()
    x, state = stepped(core)
    for p in core.parameters():
        p.grad = torch.ones_like(p)
    with torch.no_grad():
        CHANGES[name](core)
        y, _ = core.step(x, state.detach())
    torch.testing.assert_close(y, by_block(core, x, state), atol=1e-5, rtol=1e-5)


def test_a_change_that_torch_counts_is_noticed_in_the_middle_of_a_stream() -> None:
    core = fresh()
    x, state = stepped(core)
    before, _ = core.step(x, state)
    with torch.no_grad():
        core.stack.final_norm.weight.mul_(1.0)
        core.stack.blocks[0].feed_forward.contract.weight.mul_(3.0)
        after, _ = core.step(x, state)
    assert not torch.allclose(before, after)


def test_a_state_in_the_hands_of_another_model_is_read_with_that_models_weights() -> None:
    core, other, twin = fresh(), fresh(1), copy.deepcopy(fresh())
    x, state = stepped(core)
    with torch.no_grad():
        for stranger in (other, twin):
            y, _ = stranger.step(x, state)
            torch.testing.assert_close(y, by_block(stranger, x, state), atol=1e-5, rtol=1e-5)


def test_a_model_may_change_its_number_type_in_the_middle_of_a_stream() -> None:
    core = fresh()
    x, state = stepped(core)
    expected = by_block(core, x, state)
    core.double()
    with torch.no_grad():
        y, state = core.step(x.double(), state)
        core.step(x.double(), state)
    torch.testing.assert_close(y.float(), expected, atol=1e-5, rtol=1e-5)


def test_a_model_made_and_used_in_inference_mode_steps() -> None:
    with torch.inference_mode():
        core = fresh()
        x, state = stepped(core)
        y, _ = core.step(x, state)
        torch.testing.assert_close(y, by_block(core, x, state), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["feedback", "transformer"])
def test_slots_that_no_row_has_are_left_behind_and_nothing_else_changes(kind: str) -> None:
    torch.manual_seed(0)
    core = CORES[kind](CONFIG).eval().double()
    x, reset = torch.randn(3, 10, 16).double(), torch.zeros(3, 10, dtype=torch.bool)
    reset[0, 7] = reset[1, 6] = reset[2, 8] = True
    with torch.no_grad():
        _, state = core(x, None, reset)
        kept = state.detach()
        assert (state.memory.shape[2], kept.memory.shape[2]) == (6, 4)
        for cut in (kept, MemoryState(state.memory, state.length)):
            torch.testing.assert_close(core(x, cut)[0], core(x, state)[0])
        nothing = state.reset(torch.ones(3, dtype=torch.bool)).detach()
        assert nothing.memory.shape[2] == 0
        torch.testing.assert_close(core(x, nothing)[0], core(x)[0])


@pytest.mark.parametrize("kind", ["feedback", "transformer"])  # torch's LSTM knows no autocast on every CPU
def test_a_state_from_under_autocast_goes_on_without_it(kind: str) -> None:
    core = CORES[kind](ModelConfig(core=kind, num_layers=2, model_dim=16, num_heads=2, memory_size=6))
    x = torch.randn(3, 5, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, state = core(x)
    y, _ = core(x, state.detach())
    assert y.dtype == torch.float32
    assert torch.isfinite(y).all()


def test_dropout_that_somebody_has_switched_off_stays_off() -> None:
    x = torch.randn(2, 8, 16)
    for switch in (lambda d: setattr(d, "p", 0.0), nn.Module.eval):
        core = FeedbackTransformer(ModelConfig(num_layers=2, model_dim=16, num_heads=2, dropout=0.5)).train()
        assert not torch.equal(core(x)[0], core(x)[0])
        for module in core.modules():
            if isinstance(module, nn.Dropout):
                switch(module)
        assert torch.equal(core(x)[0], core(x)[0])


def test_hooks_on_inner_layers_are_called_forward_and_backward() -> None:
    core, called = fresh(), []
    layer = core.stack.blocks[0].feed_forward
    layer.register_forward_hook(lambda *_: called.append("forward"))
    layer.register_full_backward_hook(lambda *_: called.append("backward"))
    core(torch.randn(2, 3, 16))[0].sum().backward()
    assert called.count("forward") == called.count("backward") == 3


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_a_stream_notices_an_update_by_a_fused_optimizer(optimizer: type[torch.optim.Optimizer]) -> None:
    """Which torch's count of a tensor's changes does not tell of."""
    found = []
    for engine in ("auto", "loop"):
        core = fresh()
        core.engine = engine
        x, state = stepped(core)
        for p in core.parameters():
            p.grad = torch.ones_like(p)
        optimizer(core.parameters(), lr=0.1, fused=True).step()  # type: ignore[call-arg]
        with torch.no_grad():
            found.append(core.step(x, state)[0])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("first", ["steps", "block"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_state_goes_on_in_another_number_type(name: str, first: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    core, x = CORES[name](CONFIG), torch.randn(3, 4, 16)
    with torch.no_grad():
        if first == "block":
            _, state = core(x)
        else:
            state = None
            for t in range(4):
                _, state = core.step(x[:, t], state)
        other = copy.deepcopy(core).to(dtype)
        expected, _ = core.step(x[:, 0], state)
        y, after = other.step(x[:, 0].to(dtype), state)
        block, _ = other(x[:, :1].to(dtype), state)
    graph, _ = other.step(x[:, 0].to(dtype), state)
    near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float64 else {"atol": 0.1, "rtol": 0.1}
    for found in (y, block[:, 0], graph):
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), expected, **near)
    assert all(t.dtype == dtype for part, t in after.tensors().items() if part != "length")


def test_a_state_of_a_stream_can_be_copied_and_saved() -> None:
    core = fresh()
    x, state = stepped(core)
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        with torch.no_grad():
            torch.testing.assert_close(core.step(x, other)[0], core.step(x, state)[0])


class Doubled(Composition):
    """Not what its `mixing` says."""

    def forward(self, layers: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(layers)


def biased(core: FeedbackTransformer) -> None:
    core.stack.blocks[0].attention.to_query = nn.Linear(16, 16)  # type: ignore[union-attr]


REBUILT: dict[str, Callable[[FeedbackTransformer], object]] = {
    "another epsilon": lambda core: setattr(core.stack.blocks[0].attention_norm, "eps", 0.5),
    "a bias": biased,
    "a hook on the composition": lambda core: core.composition.register_forward_hook(lambda m, i, o: 2 * o),
    "a forward of its own": lambda core: setattr(core.stack.blocks[0].feed_forward, "forward", lambda x: 0 * x),
    "a composition that does more": lambda core: setattr(core, "composition", Doubled(torch.tensor([[0, 0.5, 0.5]]))),
}


@pytest.mark.parametrize("name", REBUILT)
def test_no_engine_takes_the_place_of_a_model_that_was_rebuilt(name: str) -> None:
    core = fresh()
    plain = core(torch.ones(2, 5, 16))[0]
    REBUILT[name](core)
    y, _ = core(torch.ones(2, 5, 16))
    core.engine = "loop"
    torch.testing.assert_close(y, core(torch.ones(2, 5, 16))[0])
    assert not torch.allclose(y, plain), "and it does change what is computed"


def twice(core: FeedbackTransformer) -> None:
    core.stack.blocks[0].feed_forward = nn.Sequential(core.stack.blocks[0].feed_forward, nn.Tanh())


SWAPPED = {name: rebuild for name, rebuild in REBUILT.items() if name != "another epsilon"} | {
    "another layer": lambda core: setattr(core.stack.blocks[0].feed_forward, "contract", nn.Linear(64, 16)),
    "a module around another": twice,
}


@pytest.mark.parametrize("name", SWAPPED)
def test_a_stream_that_goes_on_notices_a_model_that_was_rebuilt(name: str) -> None:
    core = fresh()
    x, state = stepped(core)
    with torch.no_grad():
        SWAPPED[name](core)
        y, after = core.step(x, state)
        z, _ = core.step(x, after)
        core.engine = "loop"
        wanted, after = core.step(x, state)
        torch.testing.assert_close(y, wanted)
        torch.testing.assert_close(z, core.step(x, after)[0])
