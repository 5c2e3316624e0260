"""The engine `fused`: a block as one autograd function with a hand-written backward, on any device.

What it saves over the step loop under autograd: no tape inside the loop, every buffer allocated once, keys and values
written in place into one window, and the gradient of a weight computed after the loop as one product over all steps.
`steps.py` has the two steps themselves; this file has what comes before, between and after them. docs/engines.md has
the algebra.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source, history_of_block, sharpness
from feedback_transformer.kernels.dropout import random_signs
from feedback_transformer.kernels.folding import Folded, fold, fold_source, project
from feedback_transformer.kernels.norms import Norm, normalise
from feedback_transformer.kernels.source_steps import (
    FoldedSource,
    SourceGradients,
    SourceStep,
    SourceTrace,
    SourceUndone,
    key_value_gradients,
)
from feedback_transformer.kernels.steps import (
    Gradients,
    Noise,
    Norms,
    Trace,
    Window,
    backward_step,
    forward_step,
)

DTYPES = (torch.float32, torch.float64)


def fused_block(
    x: Tensor,
    memory: Tensor,
    length: Tensor,
    reset: Tensor | None,
    weights: BlockWeights,
    options: BlockOptions,
    source: Source | None = None,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Follows the contract of an engine. `compiled` compiles the steps with torch.compile, over fixed-size windows."""
    window = weights.position.shape[1]
    folded = fold(weights, options)
    keys, values = project(without_hidden(memory, length, reset), folded, options)
    if compiled:  # add slots that do not exist, so that every step reads as many; the mask hides them
        padding = (0, 0, window - memory.shape[1], 0)
        keys, values = (torch.nn.functional.pad(part, padding) for part in (keys, values))
    plan = Plan(length, reset, x.shape[1], keys.shape[2], window, options, compiled)
    inputs = (x, keys, values, *folded, *(() if source is None else fold_source(source, weights, options)))
    keep = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    y, memories = _Block.apply(plan, keep, *inputs)  # type: ignore[no-untyped-call]
    return y, memories


# ------------------------------------------------------------------------------------------- before the loop


def without_hidden(memory: Tensor, length: Tensor, reset: Tensor | None) -> Tensor:
    """[B, M, D] with zeros in the slots that the first step does not see, and so none: whatever they hold, a NaN too,
    counts for nothing."""
    slots = memory.shape[1]
    seen = length if reset is None else length.masked_fill(reset[:, 0].to(torch.bool), 0)
    if memory.device.type == "cpu" and bool((seen >= slots).all()):
        return memory
    hidden = torch.arange(slots, device=memory.device) < slots - seen[:, None]
    return memory.masked_fill(hidden.unsqueeze(-1), 0)


class Plan:
    """What is known of a block before it runs: each step's window, what is masked in it, and the dropout."""

    def __init__(
        self, length: Tensor, reset: Tensor | None, steps: int, carried: int, window: int, options: BlockOptions,
        compiled: bool = False,
    ) -> None:  # fmt: skip
        self.options, self.carried, self.window, self.compiled = options, carried, window, compiled
        self.slots = [min(window, carried + t) for t in range(steps)]  # how many each step reads
        self.history = history_of_block(length, steps, reset, window)
        if length.device.type == "cpu":
            slots = torch.tensor(self.slots)
            self.partial = (self.history < slots).any(0).tolist()
            self.empty = ((self.history == 0).any(0) & (slots > 0)).tolist()
        else:  # checking would wait for the device: mask wherever a row might be short
            known = carried == 0 and reset is None
            self.partial = [not known] * steps
            self.empty = [not known and (t == 0 or reset is not None) for t in range(steps)]

    def first(self, t: int) -> int:
        """The first slot that step t reads; it writes slot `carried + t`."""
        return self.carried + t - self.slots[t]

    def offsets(self, t: int, bias: Tensor | None, like: Tensor) -> Tensor | None:
        """[B*H, n]: added to the scores of step t: the position bias, or a very low number where nothing exists."""
        slots, heads = self.slots[t], self.options.num_heads
        if bias is None and not self.partial[t]:
            return None
        batch = len(self.history)
        added = like.new_zeros(1, 1, 1) if bias is None else bias[None, :, bias.shape[1] - slots :]
        if self.partial[t]:
            distance = torch.arange(slots, 0, -1, device=like.device)
            hidden = distance > self.history[:, t, None]  # [B, n]
            # Half of the lowest number: no sum with a score overflows, and its exponential is exactly zero.
            added = torch.where(hidden.unsqueeze(1), torch.finfo(like.dtype).min / 2, added)
        return added.expand(batch, heads, slots).reshape(batch * heads, slots)

    def alive(self, t: int, like: Tensor) -> Tensor | None:
        """[B*H, 1]: 0 for rows that see nothing; their attention is zero. None where every row sees something."""
        if not self.empty[t]:
            return None
        return (self.history[:, t] > 0).to(like.dtype).repeat_interleave(self.options.num_heads).unsqueeze(1)

    def forget(self, t: int, window: Window, memories: Tensor) -> None:
        """What a row that begins anew inside the block has left behind counts for nothing from step t on, a NaN too."""
        if t == 0 or not self.empty[t]:
            return
        if memories.device.type == "cpu" and bool(memories[:, max(0, t - self.slots[t]) : t].isfinite().all()):
            return
        begun = (self.history[:, t] == 0).repeat_interleave(self.options.num_heads)
        for part in window.slots(self.first(t), self.carried + t):
            part.masked_fill_(begun[:, None, None] & ~part.isfinite(), 0)

    def sharp(self, t: int, like: Tensor) -> Tensor | None:
        """[B, 1]: the factor of the queries, or None."""
        return sharpness(self.history[:, t, None], like.dtype) if self.options.log_scale else None


def _noises(plan: Plan, layers: int, rows: int, hidden: int, read: int, like: Tensor) -> Iterator[Noise | None]:
    """The noise of each step, drawn from the block's own generator, so that the same seed gives the same masks."""
    if not plan.options.dropout:
        yield from (None for _ in plan.slots)
        return
    generator = torch.Generator(like.device).manual_seed(plan.options.seed)
    batch = len(plan.history)
    for slots in plan.slots:
        sizes = [layers * rows * slots, layers * batch * hidden, layers * rows * read]
        drawn = torch.split(random_signs(sum(sizes), plan.options.dropout, generator, like), sizes)
        yield Noise(drawn[0].view(layers, rows, slots), drawn[1].view(layers, batch, hidden), drawn[2])


# ------------------------------------------------------------------------------------------------ the block


@functools.cache
def _step_functions(compiled: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    if not compiled:
        return forward_step, backward_step
    return torch.compile(forward_step, dynamic=False), torch.compile(backward_step, dynamic=False)


class _Block(torch.autograd.Function):
    """x [B, T, D], keys and values [P, B*H, M, K], folded weights -> y [B, T, D], memories [B, T, D]"""

    @staticmethod
    def forward(ctx: Any, plan: Plan, keep: bool, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        folded, source = _sorted(rest[2:])
        batch, steps, width = x.shape
        layers, rows, hidden = len(folded.query), rest[0].shape[1], folded.expand.shape[1]
        kept_steps = steps if keep else 1  # without a backward, all steps share one step's buffers
        trace = _new_trace(x, folded, kept_steps, plan.options.pre_norm)
        attentions = _new_attentions(x, plan, layers * rows, keep)
        read = None if source is None else SourceTrace.new(source, kept_steps, batch)
        positions = 0 if source is None else source.mask.shape[2]
        window = Window(*(_extended(carried, steps) for carried in rest[:2]))
        y, memories = torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(batch, steps, width)
        run, _ = _step_functions(plan.compiled)
        weights, shared = folded.layers(), {slots: folded.shared(slots) for slots in set(plan.slots)}
        for t, noise in enumerate(_noises(plan, layers, rows, hidden, positions, x)):
            step = trace.at(t % kept_steps)
            reading = None
            if source is not None and read is not None:
                drop = None if noise is None else noise.source.view(layers, rows, positions)
                reading = SourceStep(source, read.at(t % kept_steps), drop)
            step.layers[0].copy_(x[:, t])
            plan.forget(t, window, memories)
            slots = plan.slots[t]
            run(
                step, attentions[t].view(layers, rows, slots), window.slots(plan.first(t), plan.carried + t + 1),
                weights, shared[slots], plan.offsets(t, folded.position_bias, x), plan.alive(t, x),
                plan.sharp(t, x), noise, plan.options.pre_norm, reading,
            )  # fmt: skip
            y[:, t] = step.layers[-1]
            memories[:, t] = step.memory[0]
        if keep:
            ctx.plan = plan
            ctx.save_for_backward(*attentions, *trace, *window, *(read or ()), *rest[2:])
        return y, memories

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_memories: Tensor) -> tuple[Any, ...]:
        plan: Plan = ctx.plan
        pre_norm, steps = plan.options.pre_norm, len(plan.slots)
        saved = list(ctx.saved_tensors)
        attentions, saved = saved[:steps], saved[steps:]
        trace, window, saved = Trace(*saved[:7]), Window(*saved[7:9]), saved[9:]
        read = SourceTrace(*saved[:4]) if len(saved) > len(Folded._fields) else None
        folded, source = _sorted(saved[4:] if read else saved)
        layers, rows = len(folded.query), window.keys.shape[1]
        norms = _norms(trace, folded, pre_norm)
        grads = _new_gradients(trace, folded, grad_y, grad_memories, pre_norm)
        undone = None
        if source is not None and read is not None:
            undone = SourceUndone(
                source, read, SourceGradients.like(read, not pre_norm), _normed(read.sums, source.gain, source.shift)
            )
        grad_window = Window(torch.zeros_like(window.keys), torch.zeros_like(window.values))
        grad_position = torch.zeros_like(folded.position)
        grad_bias = None if folded.position_bias is None else torch.zeros_like(folded.position_bias)
        grad_span = None if folded.span is None else torch.zeros_like(folded.span)
        _, run = _step_functions(plan.compiled)
        weights, shared = folded.layers(), {slots: folded.shared(slots) for slots in set(plan.slots)}
        for t in range(steps - 1, -1, -1):
            slots, first, last = plan.slots[t], plan.first(t), plan.carried + t + 1
            columns = plan.window - slots
            run(
                grads.at(t), grad_window.slots(first, last), grad_position[:, columns:],
                None if grad_bias is None else grad_bias[:, columns:],
                None if grad_span is None else grad_span[..., columns:], trace.at(t), norms.at(t),
                attentions[t].view(layers, rows, slots), window.slots(first, last), weights, shared[slots],
                plan.sharp(t, grad_y), plan.options.dropout > 0, pre_norm, None if undone is None else undone.at(t),
            )  # fmt: skip
        carried = grad_window.slots(0, plan.carried)
        fed = norms.sums if undone is None else undone.norm
        by_weight = _weight_gradients(trace, norms, fed, grads, pre_norm)
        by_source = () if undone is None else _source_gradients(undone, norms.sums)
        x = grads.input[0].transpose(0, 1)
        return None, None, x, *carried, *by_weight, grad_position, grad_bias, grad_span, *by_source


def _sorted(parts: Sequence[Any]) -> tuple[Folded, FoldedSource | None]:
    count = len(Folded._fields)
    return Folded(*parts[:count]), FoldedSource(*parts[count:]) if len(parts) > count else None


def _new_trace(x: Tensor, folded: Folded, steps: int, pre_norm: bool) -> Trace:
    layers, inner, _ = folded.query.shape
    batch, _, width = x.shape

    def new(count: int, size: int) -> Tensor:
        return x.new_empty(count, steps, batch, size)

    return Trace(
        layers=new(layers + 1, width),
        sums=new(layers, width),
        outputs=new(0 if pre_norm else layers, width),
        query=new(layers, inner),
        mixed=new(layers, inner),
        hidden=new(layers, folded.expand.shape[1]),
        memory=new(1, width),
    )


def _new_attentions(x: Tensor, plan: Plan, rows: int, keep: bool) -> list[Tensor]:
    """One flat buffer per step, as long as the step's window; without a backward, the same one for all."""
    if keep:
        sizes = [rows * slots for slots in plan.slots]
        return list(torch.split(x.new_empty(sum(sizes)), sizes))
    whole = x.new_empty(rows * max(plan.slots))
    return [whole[: rows * slots] for slots in plan.slots]


def _extended(carried: Tensor, steps: int) -> Tensor:
    """[P, B*H, M, K] -> [P, B*H, M + T, K], the last T to be written."""
    pairs, rows, slots, width = carried.shape
    window = carried.new_empty(pairs, rows, slots + steps, width)
    window[:, :, :slots] = carried
    return window


# ------------------------------------------------------------------------------------------- after the loop


def _norms(trace: Trace, folded: Folded, pre_norm: bool) -> Norms:
    """Recomputed for the whole block at once, which is cheaper than storing them in the loop."""
    sums = _normed(trace.sums, folded.attention_gain, folded.attention_shift)
    if pre_norm:
        return Norms(normalise(trace.layers[:-1]), sums, normalise(trace.memory))
    layers, memory = trace.layers[:-1], trace.memory
    return Norms(Norm(layers, layers, layers), sums, Norm(memory, memory, memory))


def _normed(sums: Tensor, gain: Tensor | None, shift: Tensor | None) -> Norm:
    norm = normalise(sums)
    if gain is None or shift is None:
        return norm
    return norm._replace(normed=norm.normed * gain[:, None, None] + shift[:, None, None])


def _new_gradients(trace: Trace, folded: Folded, grad_y: Tensor, grad_memories: Tensor, pre_norm: bool) -> Gradients:
    norms_of = trace.outputs  # has no layers under pre-norm
    return Gradients(
        query=torch.empty_like(trace.query),
        sums=torch.empty_like(trace.sums),
        hidden=torch.empty_like(trace.hidden),
        outputs=torch.empty_like(trace.sums),
        normed_sums=torch.empty_like(norms_of),
        normed_outputs=torch.empty_like(norms_of),
        key_value=trace.memory.new_empty(*trace.memory.shape[:3], len(folded.key_value)),
        memory=grad_memories.transpose(0, 1).clone(memory_format=torch.contiguous_format).unsqueeze(0),
        input=grad_y.transpose(0, 1).clone(memory_format=torch.contiguous_format).unsqueeze(0),
    )


def _weight_gradients(
    trace: Trace, norms: Norms, fed: Norm, grads: Gradients, pre_norm: bool
) -> tuple[Tensor | None, ...]:
    """One product per weight, over all steps and rows; in the order of `Folded`, up to the mixing.

    `fed` is what the feed-forward sublayer read.
    """
    gains: tuple[Tensor | None, ...] = (None,) * 4
    if not pre_norm:
        gains = *_gain(grads.normed_sums, trace.sums), *_gain(grads.normed_outputs, trace.outputs)
    return (
        _product(grads.query, norms.attention[0]), grads.query.sum((1, 2)),
        _product(grads.sums, trace.mixed),
        _product(grads.hidden, fed[0]), grads.hidden.sum((1, 2)),
        _product(grads.outputs, trace.hidden), grads.outputs.sum((1, 2)),
        *gains,
        _product(grads.key_value, norms.memory[0])[0], grads.key_value.sum((0, 1, 2)),
        torch.mv(trace.layers.flatten(1), grads.memory.flatten()),
    )  # fmt: skip


def _source_gradients(undone: SourceUndone, read: Norm) -> tuple[Tensor | None, ...]:
    """In the order of `FoldedSource`; `read` is what the queries read."""
    grads, trace = undone.grads, undone.trace
    return (
        _product(grads.query, read[0]), grads.query.sum((1, 2)), _product(grads.sums, trace.mixed),
        *((None, None) if undone.folded.gain is None else _gain(grads.normed_sums, trace.sums)),
        *key_value_gradients(trace, grads), None,
    )  # fmt: skip


def _gain(grad: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of gain and shift [L, D], from the gradient after the norm of `sums`."""
    return (grad * normalise(sums)[0]).sum((1, 2)), grad.sum((1, 2))


def _product(grad: Tensor, given: Tensor) -> Tensor:
    """The gradient [N, out, in] of weights in y = W x, from those of y [N, T, B, out] and x [N, T, B, in]."""
    return torch.stack([y.flatten(0, 1).t() @ x.flatten(0, 1) for y, x in zip(grad, given, strict=True)])
