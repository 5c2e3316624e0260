"""The same maths, faster: a whole block of Feedback Transformer steps as one function of tensors.

    engines()             the engines, what each covers, and whether it can run here
    choose(name, needs)   the engine for a block: the named one, or for "auto" the fastest that covers it

Every engine follows `contract.py` and computes the same numbers as the step loop in `model/feedback.py`. That loop is
the engine `loop`: the reference, and the fallback when nothing faster covers a model.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from feedback_transformer.config import ConfigError, nearest
from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.fused import DTYPES, fused_block
from feedback_transformer.kernels.native import native_block
from feedback_transformer.kernels.native_build import native_available

__all__ = [
    "BlockFunction",
    "BlockOptions",
    "BlockWeights",
    "Engine",
    "Needs",
    "Source",
    "check_name",
    "choose",
    "engines",
    "find",
    "transforming",
]


class BlockFunction(Protocol):
    """Computes y and memories of a block: see `contract.py`."""

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        length: Tensor,
        reset: Tensor | None,
        weights: BlockWeights,
        options: BlockOptions,
        source: Source | None = None,
    ) -> tuple[Tensor, Tensor]: ...


class Needs(NamedTuple):
    """What a block asks of an engine."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    one_memory: bool = True  # a step leaves one memory for all layers, not one per layer
    autocast: bool = False
    plain: bool = True  # no hooks on the layers inside, no module replaced by another kind
    transformed: bool = False  # by torch.func or forward-mode differentiation, which see standard operations only


@dataclass(frozen=True)
class Engine:
    """A way to compute a block."""

    name: str
    summary: str
    block: BlockFunction | None  # None: the step loop of the model itself
    devices: tuple[str, ...] = ()  # () means any
    dtypes: tuple[torch.dtype, ...] = ()
    automatic: bool = True  # `auto` may choose it
    unavailable: Callable[[], str | None] = lambda: None  # why it cannot run here, and what to do about it

    def lacks(self, needs: Needs) -> str | None:
        """The first need that this engine does not cover, in words; None if it covers all."""
        if self.block is None:
            return None
        if not needs.one_memory:
            return "a memory per layer (the compositions recurrent and previous-layer)"
        if self.devices and needs.device not in self.devices:
            return f"the device {needs.device}"
        if needs.autocast:
            return "autocast"
        if not needs.plain:
            return "layers with hooks or replaced modules, since it does not call them"
        if needs.transformed:
            return "torch.func and forward-mode differentiation"
        if needs.dtype not in self.dtypes:
            return _dtype_name(needs.dtype)
        return None

    def row(self) -> dict[str, str]:
        """For a table: name, what it is, what it covers, whether it can run here."""
        everything = self.block is None
        return {
            "name": self.name,
            "summary": self.summary,
            "compositions": "all" if everything else "weighted-sum, top, layer:K, average",
            "devices": ", ".join(self.devices) or "any",
            "dtypes": ", ".join(map(_dtype_name, self.dtypes)) or "any",
            "auto": "yes" if self.automatic else "by name only",
            "available": self.unavailable() or "yes",
        }


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_ENGINES = (
    Engine(
        "native", "C++ for the CPU, built on first use", native_block, ("cpu",), DTYPES, unavailable=native_available,
    ),
    Engine("fused", "one autograd function with a hand-written backward, in torch operations", fused_block, (), DTYPES),
    Engine("loop", "the readable step loop under autograd, which defines the results", None),
    Engine(
        "fused+compile", "fused, with its two step functions compiled by torch.compile",
        functools.partial(fused_block, compiled=True), (), DTYPES, automatic=False,
    ),
)  # fmt: skip


def transforming() -> bool:
    """Whether torch.func (grad, vmap, jvp, ..) or forward-mode differentiation is at work."""
    return forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None


def engines() -> list[dict[str, str]]:
    """What `feedback-transformer list engines` shows, the preferred engine first."""
    return [engine.row() for engine in _ENGINES]


def check_name(name: str) -> None:
    """Only "auto" and the engines that exist."""
    known = ["auto", *(engine.name for engine in _ENGINES)]
    if name not in known:
        raise ConfigError(f"there is no engine {name!r}{nearest(name, known)}")


def find(name: str) -> Engine:
    """The engine of that name, whether or not it can run here."""
    check_name(name)
    return next(engine for engine in _ENGINES if engine.name == name)


def choose(name: str, needs: Needs) -> Engine:
    """The named engine, or an error that says why it cannot be used; for "auto" the fastest that covers the needs."""
    if name == "auto":
        return _fastest(needs)
    engine = find(name)
    if lack := engine.lacks(needs):
        raise ConfigError(f"the engine {name!r} does not cover {lack}; choose engine='auto' or engine='loop'")
    if reason := engine.unavailable():
        raise ConfigError(f"the engine {name!r} cannot run here: {reason}")
    return engine


@functools.cache  # once a block: the same needs get the same answer
def _fastest(needs: Needs) -> Engine:
    for engine in _ENGINES:
        if not engine.automatic or engine.lacks(needs):
            continue
        if reason := engine.unavailable():
            _say_once(engine.name, reason)
            continue
        return engine
    raise AssertionError("the loop covers everything")


@functools.cache
def _say_once(name: str, reason: str) -> None:
    warnings.warn(f"the engine {name!r} cannot run here; using a slower one: {reason}", RuntimeWarning, stacklevel=4)
