"""Adaptive input and adaptive softmax, and the plain output layer."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from feedback_transformer import ConfigError, LanguageModel, ModelConfig
from feedback_transformer.model.embedding import AdaptiveHead, AdaptiveInput, Clusters
from feedback_transformer.presets import PAPER_MODELS


@pytest.fixture
def clusters() -> Clusters:
    return Clusters(size=30, model_dim=16, cutoffs=(5, 12), std=1.0).double()


def test_every_token_is_embedded_by_its_own_cluster(clusters: Clusters) -> None:
    vectors = AdaptiveInput(clusters)(torch.arange(30).view(5, 6))
    expected = [clusters.embeddings[0]]
    expected += [clusters.projections[i](clusters.embeddings[i + 1]) for i in range(2)]
    torch.testing.assert_close(vectors.view(30, 16), torch.cat(expected))
    assert [tuple(e.shape) for e in clusters.embeddings] == [(5, 16), (7, 4), (18, 1)]


def test_probabilities_of_all_symbols_sum_to_one(clusters: Clusters) -> None:
    head = AdaptiveHead(clusters, 16).double()
    y = torch.randn(4, 16, dtype=torch.float64)
    torch.testing.assert_close(head(y).exp().sum(dim=-1), torch.ones(4, dtype=torch.float64))


def test_losses_equal_those_from_all_log_probabilities_in_value_and_gradient(clusters: Clusters) -> None:
    head = AdaptiveHead(clusters, 16).double()
    torch.nn.init.normal_(head.bias)
    y, labels = torch.randn(200, 16, dtype=torch.float64, requires_grad=True), torch.randint(30, (200,))
    direct, whole = head.losses(y, labels), F.nll_loss(head(y), labels, reduction="none")
    torch.testing.assert_close(direct, whole)
    weights = torch.randn(200, dtype=torch.float64)
    parameters = [y, *head.parameters()]
    first = torch.autograd.grad((direct * weights).sum(), parameters)
    second = torch.autograd.grad((whole * weights).sum(), parameters)
    torch.testing.assert_close(first, second)


def test_agrees_with_torchs_adaptive_softmax(clusters: Clusters) -> None:
    head = AdaptiveHead(clusters, 16).double()
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 30, [5, 12], div_value=4.0, head_bias=True).double()
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([clusters.embeddings[0], head.entries.weight]))
        theirs.head.bias.copy_(head.bias)
        for i in range(2):
            theirs.tail[i][0].weight.copy_(clusters.projections[i].weight.t())
            theirs.tail[i][1].weight.copy_(clusters.embeddings[i + 1])
    y = torch.randn(7, 16, dtype=torch.float64)
    torch.testing.assert_close(head(y), theirs.log_prob(y))


@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model_with_cutoffs_learns_and_steps(tied: bool) -> None:
    config = ModelConfig(model_dim=16, embedding_std=0.3, tie_weights=tied, cutoffs=(5, 12))
    model = LanguageModel(config, vocab_size=30)
    tokens = torch.randint(30, (8, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = None
    for _ in range(60):
        losses, _ = model.losses(tokens[:, :-1], tokens[:, 1:])
        first = first or losses.mean().item()
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    assert losses.mean().item() < 0.7 * first
    model.eval()
    block, _ = model(tokens)
    step, _ = model.step(tokens[:, 0])
    torch.testing.assert_close(step, block[:, 0])


@pytest.mark.parametrize("cutoffs", [(0, 5), (5, 5), (12, 5), (5, 30)])
def test_impossible_cutoffs_are_a_sentence(cutoffs: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="must rise from above 0 to below the vocabulary of 30"):
        Clusters(30, 16, cutoffs, 1.0)


@pytest.mark.parametrize(("name", "millions"), [("wikitext-103-small", 44), ("wikitext-103", 139)])
def test_wikitext_models_are_within_a_percent_of_the_papers_number_of_parameters(name: str, millions: int) -> None:
    with torch.device("meta"):
        model = LanguageModel(PAPER_MODELS[name], 267_735)
    count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert abs(count / millions - 1) < 0.01
