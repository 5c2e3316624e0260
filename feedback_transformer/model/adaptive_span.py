"""Adaptive attention span (Sukhbaatar et al. 2019): each head learns how far back it looks.

A memory d steps back (d from 1) is weighted by

    span(d) = clamp((z S + R + 1 - d) / R, 0, 1)            z in [0, 1], learned; R the ramp

inside the softmax, a_d = span(d) e^{s_d} / sum_i span(i) e^{s_i}, and long spans are penalised: each layer adds
coefficient * mean(z) * S to the loss. Memories of weight zero have no effect, so nothing is computed beyond the longest
span, which is what makes short spans cheap.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STRIDE = 64  # the attended window changes in multiples of this, so that its shape seldom changes


class AdaptiveSpan(nn.Module):
    """The spans of one layer's heads."""

    def __init__(self, num_heads: int, memory_size: int, ramp: int) -> None:
        super().__init__()
        self.memory_size, self.ramp = memory_size, ramp
        self.extent = nn.Parameter(torch.zeros(num_heads))  # z

    def mask(self, distance: Tensor) -> Tensor:
        """distance [..] in steps back -> the weight of such memories for each head [H, ..]"""
        longest = self.extent.view(-1, *[1] * distance.dim()) * self.memory_size + self.ramp + 1
        return ((longest - distance) / self.ramp).clamp(0, 1)

    def reach(self) -> int:
        """How far back the farthest-looking head sees, rounded up to whole strides; at most the window."""
        farthest = float(self.extent.detach().max()) * self.memory_size + self.ramp
        return min(self.memory_size, max(1, -int(-farthest // STRIDE)) * STRIDE)

    def penalty(self) -> Tensor:
        """mean(z) * S, to be multiplied by the coefficient and added to the loss."""
        return self.extent.mean() * self.memory_size

    @torch.no_grad()
    def clamp_(self) -> None:
        """Clamp z to [0, 1], after every update."""
        self.extent.clamp_(0, 1)


def weigh(probabilities: Tensor, mask: Tensor) -> Tensor:
    """probabilities [B, H, T, M], mask [H, T, M]: masked and renormalised; zero where nothing is left"""
    masked = probabilities * mask
    total = masked.sum(dim=-1, keepdim=True)
    return masked / (total + (total == 0))
