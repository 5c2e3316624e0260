"""Single steps by the native engine for a core that keeps its state in tensors: the layer between the two.

    stream = begin_stream(core, memory, length, weights)
    y, stream = next_step(core, x, stream, weights)

A `Stream` is one moment of B streams, immutable like every state. A core's weights are packed again when a stream
begins and when a parameter has changed since, by torch's version counter or an optimizer step; a change through
`.data`, which torch does not count, is noticed when the next stream begins. `as_begun` notices hooks and other modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import Tensor, nn
from torch.nn.modules import module as _module

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.native_decoding import DecodingState, PackedOnce, PackedWeights, begin, native_step

Weights = Callable[[], tuple[BlockWeights, BlockOptions]]
SETTINGS = {"p": ("p", "training"), "eps": ("eps",)}  # of dropouts and norms: what changes what a step computes


class Stream(NamedTuple):
    """What the native engine remembers of B streams."""

    state: DecodingState
    packed: PackedWeights
    core: ReferenceType[nn.Module]  # the core that made these keys and values

    @property
    def memory(self) -> Tensor:
        """[B, M, D], read-only"""
        return self.state.memory

    @property
    def length(self) -> Tensor:
        return self.state.length

    def reset(self, rows: Tensor) -> Stream:
        return self._replace(state=self.state.reset(rows))

    def reorder(self, index: Tensor) -> Stream:
        return self._replace(state=self.state.reorder(index, self.packed))


# Hooks for all modules: registered for the whole process, for example by a profiler.
EVERY_MODULES_HOOKS: tuple[dict[int, Any], ...] = (
    *(_module._global_forward_hooks, _module._global_forward_pre_hooks),
    *(_module._global_backward_hooks, _module._global_backward_pre_hooks),
)


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


class _Pack:
    """A core's packed weights, and the places of its parameters and modules, so that a replaced one is noticed."""

    def __init__(self, core: nn.Module) -> None:
        modules = list(core.modules())
        self.places = [(module._parameters, name) for module in modules for name in module._parameters]
        parts = [(module._modules, name, part) for module in modules for name, part in module._modules.items()]
        self.parents, self.names, self.parts = zip(*parts, strict=True)
        self.attributes = [vars(part) for part in self.parts]
        self.sizes = [len(attributes) for attributes in self.attributes]
        chosen = [(own, name) for own in self.attributes for mark in SETTINGS.keys() & own for name in SETTINGS[mark]]
        self.owners, self.settings = zip(*chosen, strict=True)
        self.values = list(map(dict.get, self.owners, self.settings))
        own_hooks = (hooks for module in modules[1:] for hooks in hooks_of(module))  # a step does not call the core's
        self.hooks = [*own_hooks, *EVERY_MODULES_HOOKS]
        self.once = PackedOnce()

    def fits(self) -> bool:
        """Whether every module is still in its place, as it was, without hooks or new attributes such as `forward`."""
        return (
            not any(self.hooks)
            and tuple(map(dict.get, self.parents, self.names)) == self.parts
            and list(map(len, self.attributes)) == self.sizes
            and list(map(dict.get, self.owners, self.settings)) == self.values
        )

    def get(self, weights: Weights) -> PackedWeights:
        parameters = [place[name] for place, name in self.places]
        return self.once.get([parameter for parameter in parameters if parameter is not None], weights)


_packs: WeakKeyDictionary[nn.Module, _Pack] = WeakKeyDictionary()


def as_begun(core: nn.Module) -> bool:
    """Whether the core is made of the modules that its last stream began with; if not, the next step begins anew."""
    known = _packs.get(core)
    if known is not None and known.fits():
        return True
    _packs.pop(core, None)
    return False


def begin_stream(core: nn.Module, memory: Tensor, length: Tensor, weights: Weights) -> Stream:
    """From carried memories [B, M, D] and length [B], with the weights as they are now."""
    _packs[core] = known = _Pack(core)
    packed = known.get(weights)
    return Stream(begin(memory, length, packed), packed, ref(core))


def next_step(
    core: nn.Module, x: Tensor, stream: Stream, weights: Weights, source: Source | None = None
) -> tuple[Tensor, Stream]:
    """x [B, D] -> y [B, D] before the final norm, and the stream one step later.

    Keys and values of another core or dtype cannot be used; the stream then begins again from the memories.
    """
    known = _packs.get(core)
    if known is None or stream.core() is not core or stream.memory.dtype != x.dtype:
        stream = begin_stream(core, stream.memory.to(x.dtype), stream.length, weights)
        packed = stream.packed
    else:
        packed = known.get(weights)
    y, state = native_step(x, stream.state, packed, source)
    return y, Stream(state, packed, stream.core)
