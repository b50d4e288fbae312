"""Running sums, as JAX writes them: a window as long as the dimension, or an associative scan of halves."""

from __future__ import annotations

import math

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import WindowAttrs
from spmd.ops.window import Window, WindowDimension
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, S32, Value, Writer


@operation(1, Opcode.REDUCE_WINDOW)
def cumulative(w: Writer) -> Value | None:
    """A running sum or maximum, as jnp.cumsum lowers: a window as long as the dimension."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    at = w.integer(0, x.rank - 1)
    size = x.dims[at]
    reverse = w.chance(0.3)
    run = WindowDimension(
        size,
        padding_low=0 if reverse else size - 1,
        padding_high=size - 1 if reverse else 0,
    )
    window = Window(tuple(run if d == at else WindowDimension() for d in range(x.rank)))
    kind = w.choose((ReductionKind.SUM, ReductionKind.MAX))
    b = w.builder
    hlo = b.create(
        Opcode.REDUCE_WINDOW,
        (x.hlo, b.identity(kind, x.dtype)),
        WindowAttrs(window),
        calls=(b.scope.reducer(kind, x.dtype),),
    )
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    if kind is ReductionKind.SUM:
        return summed(w, Value(hlo, 0.0), [x], x.bound * size)
    return w.keep(w.result(hlo, x.bound, x))


@operation(0.7, Opcode.SLICE, Opcode.PAD, Opcode.CONCATENATE)
def associative_scan(w: Writer) -> Value | None:
    """jax.lax.associative_scan: pairs added, scanned, and put between the sums that begin one earlier."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    at = w.integer(0, x.rank - 1)
    if x.is_float and not may_sum(x, x.dims[at]):
        return None
    hlo = _scan(w, x.hlo, at)
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    return summed(w, Value(hlo, 0.0), [x], x.bound * x.dims[at])


def _scan(w: Writer, x: HloInstruction, at: int) -> HloInstruction:
    b, size = w.builder, x.dims[at]
    if size < 2:
        return x
    pairs = b.add(_every_other(w, x, at, 0, size - 1), _every_other(w, x, at, 1, size))
    odd = _scan(w, pairs, at)
    before = odd if size % 2 else _part(w, odd, at, 0, odd.dims[at] - 1)
    first = _part(w, x, at, 0, 1)
    if before.dims[at]:
        even = b.concatenate([first, b.add(before, _every_other(w, x, at, 2, size))], at)
    else:
        even = first
    return b.add(_spread(w, even, at, 0, size), _spread(w, odd, at, 1, size))


def _part(w: Writer, x: HloInstruction, at: int, start: int, limit: int) -> HloInstruction:
    starts, limits = [0] * len(x.dims), list(x.dims)
    starts[at], limits[at] = start, limit
    return w.builder.slice(x, starts, limits)


def _every_other(w: Writer, x: HloInstruction, at: int, start: int, limit: int) -> HloInstruction:
    starts, limits, strides = [0] * len(x.dims), list(x.dims), [1] * len(x.dims)
    starts[at], limits[at], strides[at] = start, limit, 2
    return w.builder.slice(x, starts, limits, strides)


def _spread(w: Writer, x: HloInstruction, at: int, low: int, size: int) -> HloInstruction:
    """Elements at ``low``, ``low`` + 2, ... of a dimension of ``size``, zeros between."""
    none = [0] * len(x.dims)
    lows, highs, interior = list(none), list(none), list(none)
    lows[at], interior[at] = low, 1
    highs[at] = size - low - (2 * x.dims[at] - 1)
    return w.builder.pad(x, w.builder.scalar_like(x, 0), lows, highs, interior)
