"""From tokens to vectors and back: plain embedding and output layer, or adaptive ones for large vocabularies.

Adaptive input (Baevski & Auli 2018) and adaptive softmax (Grave et al. 2017): symbols are sorted by frequency and cut
into clusters; rarer clusters have narrower embeddings, projected to D by a matrix per cluster. Cluster i holds symbols
cutoffs[i-1] .. cutoffs[i] with embeddings of width D / 4^i. With tied weights, input and output share embeddings and
projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.config import ConfigError
from feedback_transformer.kernels.few_rows import linear

NARROWING = 4


def check_tokens(tokens: Tensor, size: int, shape: str = "[B, T]") -> None:
    """Raise an error for tokens of another shape, or outside a vocabulary of that size."""
    if tokens.ndim != shape.count(",") + 1:
        raise ValueError(f"tokens must be {shape}; they are {list(tokens.shape)}")
    # On an accelerator this would wait for the device; there, and in a graph, the data's own checks must suffice.
    if torch.compiler.is_compiling() or tokens.device.type != "cpu" or not tokens.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(tokens))
    if low < 0 or high >= size:
        raise ConfigError(
            f"token {low if low < 0 else high} is out of range: the vocabulary has {size} symbols, 0 to {size - 1}"
        )


class Clusters(nn.Module):
    """The embeddings [symbols of a cluster, D / 4^i] and, for all but the first cluster, their projections to D."""

    def __init__(self, size: int, model_dim: int, cutoffs: Sequence[int], std: float) -> None:
        super().__init__()
        bounds = [0, *cutoffs, size]
        if any(low >= high for low, high in pairwise(bounds)):
            raise ConfigError(f"cutoffs = {tuple(cutoffs)} must rise from above 0 to below the vocabulary of {size}")
        self.bounds = bounds
        widths = [max(1, model_dim // NARROWING**i) for i in range(len(bounds) - 1)]
        self.embeddings = nn.ParameterList(
            nn.Parameter(torch.randn(high - low, width) * std)
            for (low, high), width in zip(pairwise(bounds), widths, strict=True)
        )
        self.projections = nn.ModuleList(nn.Linear(width, model_dim, bias=False) for width in widths[1:])

    @property
    def size(self) -> int:
        return self.bounds[-1]


class AdaptiveInput(nn.Module):
    """tokens [..] -> vectors [.., D]"""

    def __init__(self, clusters: Clusters) -> None:
        super().__init__()
        self.clusters = clusters

    def forward(self, tokens: Tensor) -> Tensor:
        clusters = self.clusters
        first = clusters.embeddings[0]
        inside = tokens < clusters.bounds[1]
        vectors = F.embedding(torch.where(inside, tokens, 0), first) * inside.unsqueeze(-1)
        for index, projection in enumerate(clusters.projections, start=1):
            low, high = clusters.bounds[index : index + 2]
            chosen = ((tokens >= low) & (tokens < high)).nonzero(as_tuple=True)
            widened = projection(F.embedding(tokens[chosen] - low, clusters.embeddings[index]))
            vectors = vectors.index_put(chosen, widened.to(vectors.dtype))  # a narrower one under autocast
        return vectors


class PlainHead(nn.Linear):
    """One logit per symbol."""

    def forward(self, y: Tensor) -> Tensor:
        """y [.., D] -> logits [.., V]"""
        return linear(y, self.weight, self.bias)

    def losses(self, y: Tensor, labels: Tensor) -> Tensor:
        """y [n, D], labels [n] -> negative log-likelihoods [n]"""
        return F.cross_entropy(self(y), labels, reduction="none")


class AdaptiveHead(nn.Module):
    """One softmax over the first cluster's symbols and an entry for each rarer cluster, and one within each of those.

    log p(symbol) = log p(cluster) + log p(symbol | cluster)
    """

    def __init__(self, clusters: Clusters, model_dim: int) -> None:
        super().__init__()
        self.clusters = clusters
        self.entries = nn.Linear(model_dim, len(clusters.projections), bias=False)
        self.bias = nn.Parameter(torch.zeros(clusters.bounds[1] + len(clusters.projections)))

    def forward(self, y: Tensor) -> Tensor:
        """y [.., D] -> log-probabilities of all symbols [.., V]"""
        head, first = self._head(y), self.clusters.bounds[1]
        parts = [head[..., :first]]
        for index in range(1, len(self.clusters.embeddings)):
            entry = head[..., first + index - 1 : first + index]
            parts.append(entry + F.log_softmax(self._inside(index, y), dim=-1))
        return torch.cat(parts, dim=-1)

    def losses(self, y: Tensor, labels: Tensor) -> Tensor:
        """y [n, D], labels [n] -> negative log-likelihoods [n]; rare clusters are computed only where they occur."""
        first = self.clusters.bounds[1]
        cluster = torch.bucketize(labels, torch.tensor(self.clusters.bounds[1:-1], device=labels.device), right=True)
        target = torch.where(cluster == 0, labels, first + cluster - 1)
        losses = -self._head(y).gather(1, target[:, None]).squeeze(1)
        for index in range(1, len(self.clusters.embeddings)):
            (rows,) = (cluster == index).nonzero(as_tuple=True)
            inside = F.cross_entropy(
                self._inside(index, y[rows]), labels[rows] - self.clusters.bounds[index], reduction="none"
            )
            losses = losses.index_add(0, rows, inside)
        return losses

    def _head(self, y: Tensor) -> Tensor:
        """Log-probabilities of the first cluster's symbols and of the other clusters."""
        symbols, entries = self.clusters.embeddings[0], self.entries.weight
        if y.numel() < y.shape[-1] ** 2:  # few rows: joining logits is cheaper than joining weights
            logits = torch.cat([linear(y, symbols), linear(y, entries)], dim=-1) + self.bias
        else:
            logits = linear(y, torch.cat([symbols, entries]), self.bias)
        return F.log_softmax(logits, dim=-1)

    def _inside(self, index: int, y: Tensor) -> Tensor:
        """Logits of the symbols inside a rarer cluster: y -> its narrow width -> its symbols."""
        projection: nn.Linear = self.clusters.projections[index - 1]  # type: ignore[assignment]
        return linear(F.linear(y, projection.weight.t()), self.clusters.embeddings[index])
