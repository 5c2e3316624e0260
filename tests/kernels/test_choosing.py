"""Which engine computes a block, and what is said where one cannot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer import ConfigError, FeedbackTransformer, LanguageModel, kernels
from feedback_transformer.kernels import Needs, check_name, choose, engines
from feedback_transformer.model.memory import MemoryState
from tests.kernels.cases import (
    SMALL,
    changed,
)


def test_auto_takes_the_fastest_engine_that_covers_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("auto", Needs(one_memory=False)).name == "loop"
    assert choose("auto", Needs(dtype=torch.bfloat16)).name == "loop"
    assert choose("auto", Needs(autocast=True)).name == "loop"
    assert choose("auto", Needs(device="cuda")).name == "fused"
    assert choose("auto", Needs()).name in ("native", "fused")


def test_without_a_compiler_auto_falls_to_fused_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tuple(
        kernels.Engine(e.name, e.summary, e.block, e.devices, e.dtypes, e.automatic, lambda: "no compiler: install g++")
        if e.name == "native"
        else e
        for e in kernels._ENGINES
    )
    monkeypatch.setattr(kernels, "_ENGINES", broken)
    for cached in (kernels._fastest, kernels._say_once):
        cached.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="install g") as caught:
            chosen = [choose("auto", Needs(dtype=dtype)).name for dtype in (torch.float32, torch.float64)]
        assert chosen == ["fused", "fused"]
        assert len(caught) == 1
        with pytest.raises(ConfigError, match=r"'native' cannot run here.*install g"):
            choose("native", Needs())
    finally:
        for cached in (kernels._fastest, kernels._say_once):
            cached.cache_clear()


def test_an_engine_that_does_not_cover_a_model_says_what_it_lacks() -> None:
    core = FeedbackTransformer(changed(SMALL, memory="recurrent"), engine="fused")
    with pytest.raises(ConfigError, match="'fused' does not cover a memory per layer"):
        core(torch.randn(1, 2, 10))
    with pytest.raises(ConfigError, match="'native' does not cover the device cuda"):
        choose("native", Needs(device="cuda"))
    with pytest.raises(ConfigError, match="did you mean 'fused'"):
        FeedbackTransformer(SMALL, engine="fuse")
    with pytest.raises(ConfigError, match="there is no engine 'turbo'"):
        check_name("turbo")


def test_the_engine_of_a_language_model_is_its_cores() -> None:
    assert LanguageModel(SMALL, vocab_size=3, engine="loop").core.engine == "loop"
    assert LanguageModel(changed(SMALL, core="lstm"), vocab_size=3, engine="loop").core is not None


def test_hooks_on_the_layers_are_called_since_auto_then_takes_the_loop() -> None:
    core, seen = FeedbackTransformer(SMALL), []
    handle = core.stack.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(2, 3, 10)
    hooked, _ = core(x)
    handle.remove()
    torch.testing.assert_close(core(x)[0], hooked)
    assert len(seen) == 3


def test_replaced_modules_are_called_since_auto_then_takes_the_loop() -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    core, x = FeedbackTransformer(SMALL), torch.randn(2, 3, 10)
    inner = core.stack.blocks[0].feed_forward
    replacement = Doubled(14, 10)
    replacement.load_state_dict(inner.contract.state_dict())
    inner.contract = replacement
    with torch.no_grad():
        given = core(x)[0]
        core.engine = "loop"
        torch.testing.assert_close(given, core(x)[0], rtol=0, atol=0)
    core.engine = "fused"
    with pytest.raises(ConfigError, match="replaced modules"):
        core(x)


def test_a_compiled_model_calls_its_engine(engine: str) -> None:
    core, x = FeedbackTransformer(SMALL, engine=engine), torch.randn(2, 3, 10)
    torch.testing.assert_close(torch.compile(core, backend="eager")(x)[0], core(x)[0])


@torch.no_grad()
def test_a_step_can_be_exported() -> None:
    core = FeedbackTransformer(SMALL).eval()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core = core

        def forward(self, x: Tensor, memory: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
            y, state = core.step(x, MemoryState(memory, length))
            return y, state.memory

    inputs = torch.randn(2, 10), torch.randn(2, 1, 5, 10), torch.tensor([5, 2])
    exported = torch.export.export(Step(), inputs).module()
    for found, expected in zip(exported(*inputs), Step()(*inputs), strict=True):
        torch.testing.assert_close(found, expected)


def test_half_precision_is_handed_to_the_loop() -> None:
    core = FeedbackTransformer(SMALL).to(torch.bfloat16)
    y, _ = core(torch.randn(2, 3, 10, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16


def test_every_engine_is_listed_with_what_it_covers() -> None:
    rows = engines()
    assert [row["name"] for row in rows] == ["native", "fused", "loop", "fused+compile"]
    assert all(row[key] for row in rows for key in ("summary", "compositions", "devices", "dtypes", "available"))
