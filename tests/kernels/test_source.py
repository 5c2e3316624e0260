"""A decoder's attention to its source, by every engine: what the step loop computes, and every gradient."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from feedback_transformer import ConfigError, FeedbackTransformer
from feedback_transformer.kernels import Source
from feedback_transformer.kernels.decoding import Stream
from feedback_transformer.model.memory import MemoryState
from tests.kernels.cases import SMALL, SPANS, Case, assert_same, changed, new_case, new_core, results

DECODER = changed(SMALL, encoder_layers=1)


@pytest.mark.parametrize(
    ("norm", "shared", "slots", "resets"), [*itertools.product(("pre", "post"), (True, False), (0, 5), (False, True))]
)
def test_outputs_and_gradients_equal_the_loop(engine: str, norm: str, shared: bool, slots: int, resets: bool) -> None:
    config = changed(DECODER, norm=norm, shared_kv=shared, position_slopes=(1.0, 0.1))
    core = new_core(config)
    for steps in (1, 11):
        case = new_case(config, steps=steps, slots=slots, resets=resets, batch=4)
        assert_same(results(core, engine, case), results(core, "loop", case))


@pytest.mark.parametrize("base", [{}, vars(SPANS)], ids=["plain", "spans"])
@pytest.mark.parametrize(("batch", "width", "heads", "head_dim"), [(1, 13, 3, 5), (17, 33, 2, 16), (2, 6, 1, 1)])
def test_any_shape_equals_the_loop(
    engine: str, base: dict[str, object], batch: int, width: int, heads: int, head_dim: int
) -> None:
    config = changed(
        DECODER, **{**base, "encoder_layers": 1, "model_dim": width, "num_heads": heads, "head_dim": head_dim}
    )
    core, case = new_core(config), new_case(config, batch=batch, steps=40, resets=True)
    assert_same(results(core, engine, case), results(core, "loop", case))


def test_a_cut_into_two_blocks_changes_nothing(engine: str) -> None:
    core, case = new_core(DECODER), new_case(DECODER)
    assert_same(results(core, engine, case, cut=3), results(core, "loop", case))


@pytest.mark.parametrize("threads", [1, 3])
def test_single_precision_is_near_the_loop_with_any_number_of_threads(engine: str, threads: int) -> None:
    config = changed(DECODER, model_dim=32, head_dim=16)
    core, case = new_core(config, torch.float32), new_case(config, batch=7, steps=9, dtype=torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_same(results(core, engine, case), results(core, "loop", case), torch.float32)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("norm", "shared"), [("pre", True), ("post", False)])
def test_layers_that_are_dropped_are_those_of_the_loop(engine: str, norm: str, shared: bool) -> None:
    config = changed(DECODER, layer_drop=0.5, norm=norm, shared_kv=shared, num_layers=4)
    core, case = new_core(config), new_case(config)
    kept = set()
    for seed in range(8):
        torch.manual_seed(seed)
        ours = results(core, engine, case)
        torch.manual_seed(seed)
        assert_same(ours, results(core, "loop", case))
        torch.manual_seed(seed)
        kept.add(sum(core.stack.kept_layers()))
    assert len(kept) > 2


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_gradient_under_dropout_is_that_of_its_mask(engine: str, norm: str) -> None:
    """Central differences along random directions, the mask held by its seed."""
    config = changed(DECODER, dropout=0.4, norm=norm)
    core, case = new_core(config, seed=1), new_case(config)  # no ReLU of this one is at its corner
    core.engine = engine
    assert case.source is not None
    leaves = [case.x, case.source.keys, case.source.values, *core.stack.blocks.parameters()]
    for leaf in leaves:
        leaf.requires_grad_()

    def loss() -> Tensor:
        torch.manual_seed(3)
        y, _ = core(case.x, MemoryState(case.memory[:, None], case.length), None, case.source)
        return (y * case.y_weight).sum()

    gradients = torch.autograd.grad(loss(), leaves)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        direction = torch.randn(leaf.shape, dtype=leaf.dtype)
        sides = []
        with torch.no_grad():
            for step in (1e-6, -2e-6):
                leaf += step * direction
                sides.append(loss())
            leaf += 1e-6 * direction
        expected = (sides[0] - sides[1]) / 2e-6
        assert abs((gradient * direction).sum() - expected) <= 1e-6 * (1 + abs(expected))


def test_dropout_on_the_source_drops_its_share_and_keeps_the_mean(engine: str) -> None:
    """With the other sublayers silent, one layer's output is linear in the mask."""
    config = changed(DECODER, num_layers=1, dropout=0.3)
    core = new_core(config)
    core.engine = engine
    block = core.stack.blocks[0]
    with torch.no_grad():
        for silent in ("feed_forward.contract", "attention.to_output"):
            for parameter in block.get_submodule(silent).parameters():
                parameter.zero_()
    core.stack.final_norm = torch.nn.Identity()
    case, rows = new_case(config, batch=1, steps=1), 20_000
    assert case.source is not None
    torch.manual_seed(0)
    y, _ = core(case.x.expand(rows, -1, -1), None, None, case.source)
    expected, _ = core.eval()(case.x, None, None, case.source)
    assert ((y.mean(0) - expected[0]).abs() <= 5 * y.std(0) / rows**0.5 + 1e-12).all()
    assert y.std(0).max() > 0.01


def test_padding_of_any_kind_is_never_read(engine: str) -> None:
    core, case = new_core(DECODER), new_case(DECODER)
    assert case.source is not None
    before = results(core, engine, case)
    hidden = case.source.mask < 0
    with torch.no_grad():
        for part in case.source[:2]:
            part.permute(1, 3, 0, 2, 4)[hidden] = 7.0
    after = results(core, engine, case)
    assert hidden[-1, 1]
    assert torch.equal(after["y"], before["y"])
    for name in ("keys", "values"):
        assert not after[f"gradient of source {name}"].permute(1, 3, 0, 2, 4)[hidden].any()


# ------------------------------------------------------------------------------------------------- steps


def steps_of(core: FeedbackTransformer, x: Tensor, source: Source, state: MemoryState | None = None) -> Tensor:
    outputs = []
    with torch.no_grad():
        for t in range(x.shape[1]):
            y, state = core.step(x[:, t], state, source)
            outputs.append(y)
    assert state is not None
    assert isinstance(state.room, Stream) == (core.engine == "native")
    return torch.stack(outputs, dim=1)


def beams(norm: str = "pre", shared: bool = True) -> tuple[FeedbackTransformer, Case, Tensor]:
    config = changed(DECODER, norm=norm, shared_kv=shared)
    core, case = new_core(config).eval(), new_case(config, steps=9)
    return core, case, case.x.repeat_interleave(2, dim=0)


@pytest.mark.parametrize(("norm", "shared"), [*itertools.product(("pre", "post"), (True, False))])
def test_steps_of_beams_that_share_a_source_equal_the_loop(engine: str, norm: str, shared: bool) -> None:
    core, case, x = beams(norm, shared)
    assert case.source is not None
    core.engine = "loop"
    expected = steps_of(core, x, case.source)
    core.engine = engine
    torch.testing.assert_close(steps_of(core, x, case.source), expected)
    with torch.no_grad():
        torch.testing.assert_close(core(x, None, None, case.source)[0], expected)


def test_a_stream_may_be_given_another_source_of_another_size(engine: str) -> None:
    """As when sentences that are done leave a search."""
    core, case, x = beams()
    assert case.source is not None
    index, rows = torch.tensor([2, 0]), torch.tensor([4, 5, 0, 1])
    outputs = {}
    for name in ("loop", engine):
        core.engine = name
        with torch.no_grad():
            _, state = core.step(x[:, 0], None, case.source)
            first, state = core.step(x[rows, 1], state.reorder(rows), case.source.reorder(index))
            longer = [torch.cat([part, part], dim=3) for part in case.source[:2]]
            mask, length = torch.cat([case.source.mask] * 2, dim=1), case.source.length + case.source.mask.shape[1]
            second, _ = core.step(x[rows, 2], state, Source(*longer, mask, length).reorder(index))
        outputs[name] = torch.stack([first, second])
    torch.testing.assert_close(outputs[engine], outputs["loop"])


def test_a_source_that_does_not_fit_is_refused_by_name() -> None:
    core, case = new_core(DECODER), new_case(DECODER)
    core.engine = "native"
    assert case.source is not None
    with pytest.raises(ValueError, match=r"source.keys must be \(3, 3, 2, 6, 3\)"):
        core(case.x, None, None, case.source._replace(keys=case.source.keys[:2]))
    with pytest.raises(ValueError, match="a source of 3 rows of 6 positions cannot be read by a batch of 4"):
        steps_of(core.eval(), torch.zeros(4, 1, 10, dtype=torch.float64), case.source)
    with pytest.raises(ConfigError, match="this core reads a source"):
        core(case.x)
    plain = FeedbackTransformer(dataclasses.replace(DECODER, encoder_layers=0)).double()
    with pytest.raises(ConfigError, match="this core reads no source"):
        plain(case.x, None, None, case.source)
