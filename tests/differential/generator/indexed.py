"""Operations that look at positions held in data: gather, scatter, sort."""

from __future__ import annotations

import math

from spmd.device import ReductionKind
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import GatherAttrs, ScatterAttrs, SortAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.differential.factors.table import PERMUTATION, WHOLE
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, MAX_ELEMENTS, S32, SIZES, U32, Value, Writer


def _ids(w: Writer, dims: tuple[int, ...]) -> HloInstruction:
    """Indices, mostly s32; a negative one turned to u32 is far out of range."""
    ids = w.of(S32, dims).hlo
    if w.chance(0.2):
        return w.builder.convert(ids, w.choose((U32, PrimitiveType.S64)))
    return ids


@operation(2, Opcode.GATHER)
def gather(w: Writer) -> Value | None:
    """Slices of random sizes from random (also out-of-range) places, with or without batching dimensions."""
    by_vector = w.wants(Opcode.GATHER, WHOLE)
    x = w.pick(lambda v: v.rank > (2 if by_vector else 0) and 0 not in v.dims)
    if x is None and by_vector:
        x = w.of(F32, tuple(w.choose(SIZES) for _ in range(3)))
    if x is None:
        return None
    order = w.shuffled(range(x.rank))
    batching = sorted(order[:1]) if x.rank > 1 and w.chance(0.25) else []
    mapped = order[len(batching) : len(batching) + (3 if by_vector else w.integer(1, 2))]
    in_part = 0.7 if w.wants(Opcode.GATHER, PERMUTATION) else 0.2
    slice_sizes = [
        1 if d in batching else (w.integer(1, n) if d in mapped or w.chance(in_part) else n)
        for d, n in enumerate(x.dims)
    ]
    collapsed = [d for d in mapped if w.chance(0.6)]
    for d in collapsed:
        slice_sizes[d] = 1
    loops = list(w.dims(w.integer(0, 2)))
    batch_at = [w.integer(0, len(loops))] if batching else []
    for at, d in zip(batch_at, batching, strict=True):
        loops.insert(at, x.dims[d])
    vector = w.integer(0, len(loops))
    scalar = len(mapped) == 1 and w.chance(0.5) and not by_vector
    ids_dims = list(loops) if scalar else [*loops[:vector], len(mapped), *loops[vector:]]
    vector = len(loops) if scalar else vector
    ids = _ids(w, tuple(ids_dims))
    window = [n for d, n in enumerate(slice_sizes) if d not in collapsed and d not in batching]
    rank = len(loops) + len(window)
    if math.prod(loops) * math.prod(window) > MAX_ELEMENTS:
        return None
    offset = tuple(sorted(w.shuffled(range(rank))[: len(window)]))
    attrs = GatherAttrs(
        offset,
        tuple(sorted(collapsed)),
        tuple(mapped),
        vector,
        tuple(slice_sizes),
        tuple(batching),
        tuple(at if scalar or at < vector else at + 1 for at in batch_at),
    )
    hlo = w.builder.create(Opcode.GATHER, (x.hlo, ids), attrs)
    return w.keep(w.result(hlo, x.bound, x))


@operation(2, Opcode.SCATTER)
def scatter(w: Writer) -> Value | None:
    """Updates added, multiplied with max/min, to rows of an operand; equal indices meet."""
    by_vector = w.wants(Opcode.SCATTER, WHOLE)
    x = w.pick(lambda v: v.rank > (2 if by_vector else 0) and v.dtype in (F32, S32))
    if x is None and by_vector:
        x = w.of(F32, tuple(w.choose(SIZES) for _ in range(3)))
    if x is None:
        return None
    order = w.shuffled(range(x.rank))
    mapped = order[: 3 if by_vector else w.integer(1, min(2, x.rank))]
    in_part = 0.7 if w.wants(Opcode.SCATTER, PERMUTATION) else 0.2
    inserted = sorted(d for d in mapped if w.chance(0.8))
    loops = w.dims(w.integer(0, 2))
    window = [
        (w.integer(min(1, n), n) if d in mapped or w.chance(in_part) else n)
        for d, n in enumerate(x.dims)
        if d not in inserted
    ]
    if any(x.dims[d] == 0 for d in inserted):
        return None
    rank = len(loops) + len(window)
    if math.prod(loops) * math.prod(window) > MAX_ELEMENTS:
        return None
    window_at = sorted(w.shuffled(range(rank))[: len(window)])
    sizes, loop_sizes, window_sizes = [], iter(loops), iter(window)
    for at in range(rank):
        sizes.append(next(window_sizes) if at in window_at else next(loop_sizes))
    kind = w.choose((ReductionKind.SUM, ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN))
    updates = w.of(x.dtype, tuple(sizes))
    count = math.prod(loops) + 1
    if kind is ReductionKind.SUM and not may_sum(x, count):
        return None
    attrs = ScatterAttrs(tuple(window_at), tuple(inserted), tuple(mapped), len(loops))
    ids = _ids(w, (*loops, len(mapped)))
    reducer = w.builder.scope.reducer(kind, x.dtype)
    hlo = w.builder.create(Opcode.SCATTER, (x.hlo, ids, updates.hlo), attrs, calls=(reducer,))
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    if kind is ReductionKind.SUM:
        return summed(w, Value(hlo, 0.0), [x, updates], x.bound + updates.bound * count)
    return w.keep(w.result(hlo, max(x.bound, updates.bound), x, updates))


@operation(1, Opcode.GATHER)
def gather_in_parallel(w: Writer) -> Value | None:
    """Rows at places that run along with the rows: jnp.take_along_axis before there were batching dimensions.

    ids [b, s] joined to a count along b: every batch looks into its own part of the operand.
    """
    x = w.pick(lambda v: v.rank == 2 and 0 not in v.dims)
    if x is None:
        return None
    ids = _with_count(w, x.dims[0], w.size() or 1)
    attrs = GatherAttrs((), (0, 1), (0, 1), 2, (1, 1))
    return w.keep(w.result(w.builder.create(Opcode.GATHER, (x.hlo, ids), attrs), x.bound, x))


def _with_count(w: Writer, rows: int, columns: int) -> HloInstruction:
    """s32[rows, columns, 2]: the row's number, and an index of its own."""
    b = w.builder
    picked = b.reshape(w.of(S32, (rows, columns)).hlo, (rows, columns, 1))
    return b.concatenate([b.iota(S32, (rows, columns, 1), 0), picked], 2)


@operation(1, Opcode.SCATTER)
def scatter_in_parallel(w: Writer) -> Value | None:
    """Updates added along with the rows: by a count among the indices, or by batching dimensions."""
    x = w.pick(lambda v: v.rank == 2 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    rows, columns = x.dims[0], w.size() or 1
    updates = w.of(x.dtype, (rows, columns))
    if not may_sum(x, columns + 1):
        return None
    if w.chance(0.5):
        ids = _with_count(w, rows, columns)
        attrs = ScatterAttrs((), (0, 1), (0, 1), 2)
    else:
        ids = w.of(S32, (rows, columns)).hlo
        attrs = ScatterAttrs((), (1,), (1,), 2, (0,), (0,))
    reducer = w.builder.scope.reducer(ReductionKind.SUM, x.dtype)
    hlo = w.builder.create(Opcode.SCATTER, (x.hlo, ids, updates.hlo), attrs, calls=(reducer,))
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    return summed(w, Value(hlo, 0.0), [x, updates], x.bound + updates.bound * columns)


@operation(1.5, Opcode.SORT)
def sort(w: Writer) -> Value | None:
    """One operand, or keys with a value beside them (then stable, so that ties are settled)."""
    x = w.pick(lambda v: v.rank > 0 and v.stable and v.dtype in (F32, S32))
    if x is None:
        return None
    dim = w.integer(0, x.rank - 1)
    y = w.pick(lambda v: v.dims == x.dims and v.dtype in (F32, S32)) if w.chance(0.5) else None
    operands = [x] if y is None else [x, y]
    less = _comparator(w, [v.dtype for v in operands], w.choose(("LT", "GT")))
    hlo = w.builder.create(
        Opcode.SORT,
        [v.hlo for v in operands],
        SortAttrs(dim, is_stable=y is not None),
        calls=(less,),
    )
    if y is None:
        return w.keep(w.result(hlo, x.bound, x))
    w.keep(w.result(w.builder.get_tuple_element(hlo, 0), x.bound, x))
    return w.keep(w.result(w.builder.get_tuple_element(hlo, 1), y.bound, y))


def _comparator(w: Writer, types: list[PrimitiveType], direction: str) -> HloComputation:
    computation = w.module.new_computation("compare")
    w.module.computations.insert(0, w.module.computations.pop())
    b = w.builder.within(computation)
    scalars = [ArrayShape(t, ()) for t in types for _ in range(2)]
    parameters = [b.parameter(n, shape) for n, shape in enumerate(scalars)]
    computation.root = b.compare(parameters[0], parameters[1], direction)
    return computation
