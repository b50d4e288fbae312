"""Evaluation of reduce-window and select-and-scatter: reductions over a sliding window.

Both iterate over the positions inside the window, each a strided view of the padded operand, so the cost is one NumPy
operation per window element. Padding and the holes of a dilated base take no part: a window starts from the initial
value and combines the elements it covers, in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.device import ReductionKind
from spmd.evaluator.combine import combine_at
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.pointwise import (
    UFUNCS,
    apply_scalar,
    identity,
    in_working_types,
    made_of_elements,
)
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of, packed
from spmd.evaluator.windows import dilate_and_pad, offset_view, offsets
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import WindowAttrs
from spmd.ops.combining import combinings
from spmd.ops.reduction import reduction_kind
from spmd.ops.window import Window, WindowDimension


def _output_sizes(dims: tuple[int, ...], window: Window) -> tuple[int, ...]:
    return tuple(w.output_size(n) for n, w in zip(dims, window.dims, strict=True))


@evaluates(Opcode.REDUCE_WINDOW)
def evaluate_reduce_window(instruction: HloInstruction, operands: Operands) -> Value:
    arrays = arrays_of(operands)
    inputs, inits = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    window = instruction.attrs_as(WindowAttrs).window
    kind = reduction_kind(instruction.to_apply)
    reducer = instruction.to_apply
    if kind is not None:
        return packed([_window_known(kind, inputs[0], inits[0], window)], instruction.shape)
    found = combinings(reducer)
    if found is None:
        return packed(_window_any(reducer, inputs, inits, window), instruction.shape)
    made = made_of_elements(reducer, found, inputs)
    totals = [
        _window_known(x.kind, elements, init, window)
        for x, elements, init in zip(found, made, inits, strict=True)
    ]
    return packed(totals, instruction.shape)


def _window_known(kind: ReductionKind, elements: NDArray, init: NDArray, window: Window) -> NDArray:
    """Reduce with a known operation one dimension at a time: it is commutative, so this gives the same in
    fewer steps.
    """
    x = widen(elements)
    nothing = identity(kind, x.dtype)
    for axis, dim in enumerate(window.dims):
        if dim != WindowDimension():
            x = _window_along(kind, x, axis, dim, nothing)
    return narrow(UFUNCS[kind](widen(init), x), init.dtype)


def _window_along(
    kind: ReductionKind, x: NDArray, axis: int, dim: WindowDimension, nothing: NDArray
) -> NDArray:
    one_dim = Window(tuple(dim if d == axis else WindowDimension() for d in range(x.ndim)))
    padded = dilate_and_pad(x, one_dim, nothing)
    out = _output_sizes(x.shape, one_dim)
    total = np.full(out, nothing, x.dtype)
    for offset in offsets(one_dim):
        UFUNCS[kind](total, offset_view(padded, one_dim, offset, out), out=total)
    return total


def _covered(dims: tuple[int, ...], window: Window) -> NDArray:
    """Return where the padded operand holds an element."""
    return dilate_and_pad(np.ones(dims, np.bool_), window, np.zeros((), np.bool_))


def _window_any(
    reducer: HloComputation, inputs: Sequence[NDArray], inits: Sequence[NDArray], window: Window
) -> list[NDArray]:
    out = _output_sizes(inputs[0].shape, window)
    covered = _covered(inputs[0].shape, window)
    reducer, start, inputs = in_working_types(reducer, inits, inputs)
    padded = [dilate_and_pad(x, window, np.zeros((), x.dtype)) for x in inputs]
    totals = [np.broadcast_to(init, out) for init in start]
    for offset in offsets(window):
        there = offset_view(covered, window, offset, out)
        elements = [offset_view(p, window, offset, out) for p in padded]
        combined = apply_scalar(reducer, [*totals, *elements])
        totals = [np.where(there, c, t) for c, t in zip(combined, totals, strict=True)]
    return [np.array(total, init.dtype) for total, init in zip(totals, inits, strict=True)]


@evaluates(Opcode.SELECT_AND_SCATTER)
def evaluate_select_and_scatter(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: operand [..], source (one element per window), init []. Result: like the operand.

    Each window keeps its first element unless ``select(kept, next)`` is false; the source element of the window is
    combined at the position of the kept element.
    """
    x, source, init = arrays_of(operands)
    select, scatter = instruction.called_computations
    chosen = _select(select, x, instruction.attrs_as(WindowAttrs).window, source.shape)
    result = np.full(x.size, init, x.dtype)
    valid = chosen.reshape(-1) >= 0
    combine_at(scatter, [result], chosen.reshape(-1)[valid], [source.reshape(-1)[valid]])
    return result.reshape(x.shape)


def _select(select: HloComputation, x: NDArray, window: Window, out: tuple[int, ...]) -> NDArray:
    """Return the flat index in ``x`` of the element each window keeps; -1 for a window over padding only."""
    missing = np.array(-1)
    indices = dilate_and_pad(np.arange(x.size).reshape(x.shape), window, missing)
    flat = x.reshape(-1)
    chosen = np.full(out, -1)
    for offset in offsets(window):
        candidate = offset_view(indices, window, offset, out)
        (keep,) = apply_scalar(select, [flat[chosen], flat[candidate]])
        better = (candidate >= 0) & ((chosen < 0) | ~keep)
        chosen = np.where(better, candidate, chosen)
    return chosen
