"""Layer norms of the fused engine, forward and backward, and the residual sums before them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

EPSILON = 1e-5  # as nn.LayerNorm has it

aten = torch.ops.aten


class Norm(NamedTuple):
    """A projection's input, and the mean and 1/std of the norm before it (never read if there is none)."""

    normed: Tensor  # [L, B, D]
    mean: Tensor  # [L, B, 1]
    inverse: Tensor  # [L, B, 1]

    def at(self, t: int) -> Norm:
        return Norm(*(buffer[:, t] for buffer in self))


def normalise(x: Tensor, gain: Tensor | None = None, shift: Tensor | None = None) -> Norm:
    """norm(x) * gain + shift, the mean and 1/std."""
    return Norm(*torch.native_layer_norm(x, (x.shape[-1],), gain, shift, EPSILON))


def norm_backward(grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor | None = None) -> Tensor:
    """The gradient of x from that of norm(x) * gain; never divides by the gain, which may be zero."""
    wanted = [True, False, False]
    result: Tensor = aten.native_layer_norm_backward(grad, x, [x.shape[-1]], mean, inverse, gain, None, wanted)[0]
    return result


class ResidualSum(NamedTuple):
    """A residual sum at one layer and step, the norm after it, and where its gradients are written."""

    value: Tensor  # [B, D]
    norm: Norm
    gain: Tensor | None  # post-norm only
    gradient: Tensor  # [B, D]
    normed_gradient: Tensor | None  # [B, D], post-norm only: at the output of the norm

    @classmethod
    def of(
        cls, index: int, values: Tensor, norms: Norm, gain: Tensor | None, gradients: Tensor, normed_gradients: Tensor
    ) -> ResidualSum:
        """The sum of layer `index`, from one step's buffers over layers."""
        normed = None if gain is None else normed_gradients[index]
        return cls(values[index], Norm(*(part[index] for part in norms)), gain, gradients[index], normed)

    def backward(self, grad: Tensor, projected: Tensor, weight: Tensor) -> Tensor:
        """Its gradient, from those of the next sum and of a projection that reads this one after its norm."""
        statistics = self.value, self.norm.mean, self.norm.inverse
        if self.gain is None:  # pre-norm: the next sum contains this one itself, else its norm's output
            return torch.add(grad, norm_backward(projected @ weight, *statistics), out=self.gradient)
        assert self.normed_gradient is not None
        normed = torch.addmm(grad, projected, weight, out=self.normed_gradient)
        return self.gradient.copy_(norm_backward(normed, *statistics, self.gain))
