"""One step at a time by the native engine: the numbers of the step loop, and states that never change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights
from feedback_transformer.kernels.native_build import native_available
from feedback_transformer.kernels.native_decoding import PackedOnce, begin, native_step, pack_weights
from tests.kernels.native_cases import Case, make_case, options_of, weights_of

pytestmark = pytest.mark.skipif(native_available() is not None, reason=str(native_available()))


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
