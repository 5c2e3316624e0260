"""The encoder-decoder: padding never leaks, steps equal blocks, beams share a source, and options do what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from feedback_transformer import ConfigError, LanguageModel, ModelConfig
from feedback_transformer.model.encoder_decoder import BEGIN, END, PAD, EncoderDecoder
from tests.model.cores import EXACT, randomize

BASE = ModelConfig(encoder_layers=2, num_layers=3, model_dim=12, num_heads=2, memory_size=5)
VARIANTS = {
    "feedback": {},
    "feedback-post-relative": {"norm": "post", "source_positions": "relative", "source_reach": 2},
    "feedback-per-layer": {"shared_kv": False, "tie_weights": True},
    "feedback-recurrent": {"memory": "recurrent"},
    "feedback-sharp": {"log_scale": True, "source_positions": "relative", "source_reach": 2},
    "feedback-neighbours": {"source_positions": "neighbours", "source_reach": 2},
    "transformer": {"core": "transformer"},
    "transformer-sharp": {"core": "transformer", "log_scale": True},
    "transformer-post-neighbours": {
        "core": "transformer",
        "norm": "post",
        "source_positions": "neighbours",
        "source_reach": 1,
    },
    "transformer-post-relative": {"core": "transformer", "norm": "post", "source_positions": "relative"},
}


def make_model(device: torch.device, **fields: Any) -> EncoderDecoder:
    model = EncoderDecoder(dataclasses.replace(BASE, **fields), vocab_size=17).double().to(device)
    randomize(model)
    return model.eval()


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest, device: torch.device) -> EncoderDecoder:
    return make_model(device, **VARIANTS[request.param])


def sentences(device: torch.device, batch: int = 3, length: int = 7) -> Tensor:
    return torch.randint(END + 1, 17, (batch, length), device=device)


def test_a_sentence_alone_and_in_a_padded_batch_has_the_same_scores(
    model: EncoderDecoder, device: torch.device
) -> None:
    lengths, source, target = [7, 2, 5], sentences(device), sentences(device, length=9)
    for row, length in enumerate(lengths):
        source[row, length:] = PAD
        target[row, length + 1 :] = PAD
    together = model(source, target)
    for row, length in enumerate(lengths):
        alone = model(source[row : row + 1, :length], target[row : row + 1, : length + 1])
        torch.testing.assert_close(together[row : row + 1, : length + 1], alone, **EXACT)


def test_what_stands_at_padding_gets_no_gradient(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device), sentences(device)
    source[1, 3:] = PAD
    model(source, target)[1].sum().backward()
    assert model.embedding.weight.grad is not None
    if not model.config.tie_weights:
        assert not model.embedding.weight.grad[PAD].any()


def test_every_source_position_is_read(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device, 1), sentences(device, 1)
    before = model(source, target)
    for position in range(source.shape[1]):
        changed = source.clone()
        changed[0, position] = END
        assert not torch.allclose(model(changed, target)[:, 0], before[:, 0])


def test_steps_equal_the_block_and_cuts_change_nothing(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device), sentences(device, length=9)
    reader, state, steps = model.read(source), None, []
    for t in range(target.shape[1]):
        logits, state = reader.step(target[:, t], state)
        steps.append(logits)
    torch.testing.assert_close(torch.stack(steps, dim=1), model(source, target), **EXACT)
    first, state = reader(target[:, :4])
    second, _ = reader(target[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model(source, target), **EXACT)


def test_beams_that_share_a_source_equal_rows_that_have_their_own(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device, batch=2), sentences(device, batch=6)
    shared, _ = model.read(source)(target)
    own, _ = model.read(source.repeat_interleave(3, dim=0))(target)
    torch.testing.assert_close(shared, own, **EXACT)


def test_a_reader_and_its_state_are_reordered_together(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device), sentences(device)
    index = torch.tensor([2, 0, 2], device=device)
    reader = model.read(source)
    _, state = reader(target[:, :3])
    logits, _ = reader.reorder(index)(target[index, 3:], state.reorder(index))
    torch.testing.assert_close(logits, model(source, target)[index, 3:], **EXACT)


def test_no_step_sees_the_target_after_it(model: EncoderDecoder, device: torch.device) -> None:
    source, target = sentences(device), sentences(device)
    changed = target.clone()
    changed[:, 4:] = END
    assert torch.equal(model(source, target)[:, :4], model(source, changed)[:, :4])


def test_neighbours_are_seen_as_far_as_the_layers_reach_and_no_further(device: torch.device) -> None:
    model = make_model(device, source_positions="neighbours", source_reach=2)  # two layers
    first, second = (sentences(device, batch=1, length=12) for _ in range(2))
    second[:, 4:] = first[:, 4:]
    second[:, 3] = first[:, 3] % 13 + END + 1
    padding = torch.zeros(1, 12, dtype=torch.bool, device=device)
    one, other = (model.encoder(model.embedding(tokens), padding) for tokens in (first, second))
    torch.testing.assert_close(one[:, 8:], other[:, 8:], **EXACT)
    assert (one[:, 7] - other[:, 7]).abs().max() > 1e-6


def test_depths_are_set_apart(device: torch.device) -> None:
    model = make_model(device, encoder_layers=12, num_layers=2)
    assert (len(model.encoder.layers), len(model.core.stack.blocks)) == (12, 2)
    assert model(sentences(device), sentences(device)).isfinite().all()


def test_tied_weights_are_one_for_source_target_and_output(device: torch.device) -> None:
    tied, untied = make_model(device, tie_weights=True), make_model(device)
    assert tied.head.weight is tied.embedding.weight
    difference = sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters())
    assert difference == 17 * 12


@pytest.mark.parametrize("core", ["feedback", "transformer"])
def test_layer_drop_leaves_out_whole_layers_in_training_only(core: str, device: torch.device) -> None:
    model = make_model(device, core=core, layer_drop=0.999)
    source, target = sentences(device), sentences(device)
    whole = model(source, target)
    model.train()
    y, _ = model.core(model._embed(target), None, None, model.encode(source))
    bare = model.core.stack.final_norm(model._embed(target))
    torch.testing.assert_close(y, bare, **EXACT)
    assert not torch.allclose(model.eval()(source, target), model.head(bare))
    assert torch.equal(model(source, target), whole)


def test_a_layer_is_dropped_for_a_whole_block(device: torch.device) -> None:
    """Half of the layers at a time: outputs are those of one draw, not of one a step."""
    torch.manual_seed(1)
    model = make_model(device, layer_drop=0.5, encoder_layers=1).train()
    source = make_model(device).encode(sentences(device))
    x = torch.randn(3, 6, 12, dtype=torch.float64, device=device)
    state = torch.get_rng_state()
    y, _ = model.core(x, None, None, source)
    torch.set_rng_state(state)
    kept = model.core.stack.kept_layers()
    assert 0 < sum(kept) < 3
    memory, steps = None, []
    for t in range(6):
        step, memory = model.core._step(x[:, t], memory, source, kept)
        steps.append(step)
    torch.testing.assert_close(torch.stack(steps, dim=1), y, **EXACT)


def test_what_cannot_be_is_a_sentence(device: torch.device) -> None:
    for fields, sentence in (
        ({"core": "lstm"}, "core = 'lstm' cannot read a source; choose one of feedback, transformer"),
        ({"encoder_layers": 0}, "encoder_layers = 0 must be 1 or more"),
        ({"cutoffs": (4, 8)}, "cutoffs = .* are for language models"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            EncoderDecoder(dataclasses.replace(BASE, **fields), 17)
    with pytest.raises(ConfigError, match="vocab_size = 2 must be above 2"):
        EncoderDecoder(BASE, 2)
    with pytest.raises(ConfigError, match="encoder_layers = 2, but there is no source"):
        LanguageModel(BASE, 17)
    model = make_model(device)
    with pytest.raises(ConfigError, match="this core reads a source"):
        model.core(torch.zeros(1, 1, 12, dtype=torch.float64, device=device))
    with pytest.raises(ConfigError, match="token 17 is out of range"):
        model(torch.tensor([[17]]), torch.tensor([[BEGIN]]))
