"""Modules that set off identities which compute or move less: cut first, reduce what was reshaped, multiply less."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode, Stage
from spmd.ops.attrs import DotAttrs, GatherAttrs, RaggedDotAttrs, ScatterAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.algebraic_forms import form
from tests.spmd.passes.triggers.programs import FLOATS, INTEGERS, NUMBERS, Program

S32 = PrimitiveType.S32
REAL = (*FLOATS, *INTEGERS)


def _part(p: Program, x: HloInstruction) -> HloInstruction:
    """A slice of ``x`` that is smaller than it, of which each dimension has 2 elements at least."""
    starts = [p.integer(0, n - 2) for n in x.dims]
    limits = [p.integer(s + 1, n) for s, n in zip(starts, x.dims, strict=True)]
    limits[0] = min(limits[0], x.dims[0] - (starts[0] == 0))
    return p.b.slice(x, starts, limits, [p.choose((1, 1, 2)) for _ in x.dims])


def _wide(p: Program, low: int = 1) -> HloInstruction:
    dims = [p.integer(2, 6) for _ in range(p.integer(low, 3))]
    return p.value(p.element_type(NUMBERS), dims)


@form
def slice_of_elementwise(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x = _wide(p)
    return _part(p, p.b.add(x, p.like(x)) if p.chance() else p.b.negate(x))


@form
def dynamic_slice_of_elementwise(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x = _wide(p)
    scalar = p.b.broadcast_scalar(p.value(x.array_shape.element_type, ()), x.dims)
    value = p.b.multiply(*p.shuffled((x, scalar))) if p.chance() else p.b.negate(x)
    return p.b.dynamic_slice(value, [p.value(S32, ()) for _ in x.dims], [n - 1 for n in x.dims])


@form
def gather_of_elementwise(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    rows, columns = p.integer(1, 4), p.integer(4, 8)
    x = p.value(p.element_type(NUMBERS), (rows, columns))
    each = p.b.broadcast(p.value(x.array_shape.element_type, (rows,)), (0,), x.dims)
    value = p.b.multiply(*p.shuffled((x, each))) if p.chance() else p.b.negate(x)
    attrs = GatherAttrs((), (1,), (1,), 1, (1, 1), (0,), (0,))
    return p.b.create(Opcode.GATHER, (value, p.value(S32, (rows, 1))), attrs)


@form
def one_element_per_row(p: Program) -> HloInstruction:
    rows, columns = p.integer(1, 4), p.integer(1, 8)
    updates = p.value(p.element_type(NUMBERS), (rows,))
    kind = updates.array_shape.element_type
    start = p.b.full(ArrayShape(kind, (rows, columns)), p.integer(0, 2))
    return p.b.create(
        Opcode.SCATTER,
        (start, p.value(S32, (rows, 1)), updates),
        ScatterAttrs((), (1,), (1,), 1, (0,), (0,)),
        calls=(p.b.scope.reducer(ReductionKind.SUM, kind),),
    )


@form
def slice_of_large_iota(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    count = p.b.iota(S32, (1 << 16,), 0)
    start, stride = p.integer(0, 40_000), p.integer(1, 3)
    return p.b.slice(count, (start,), (start + 4 * stride,), (stride,))


@form
def slice_of_padded(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x = _wide(p)
    gaps = [p.integer(1, 3) for _ in x.dims]
    low = [p.integer(0, 2) for _ in x.dims]
    padded = p.b.pad(x, p.value(x.array_shape.element_type, ()), low, low, gaps)
    return _part(p, padded)


@form
def slice_across_parts(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x = _wide(p)
    axis = p.integer(0, len(x.dims) - 1)
    whole = p.b.concatenate([x, *(p.like(x) for _ in range(p.integer(1, 2)))], axis)
    return _part(p, whole)


@form
def slice_of_unit_reshape(p: Program) -> HloInstruction:
    p.result.stage = Stage.PARTITIONED
    x = _wide(p)
    place = p.integer(0, len(x.dims))
    unit = p.b.reshape(x, (*x.dims[:place], 1, *x.dims[place:]))
    return p.b.slice(unit, [0] * len(unit.dims), [max(1, n - 1) for n in unit.dims])


@form
def reduce_of_reshape(p: Program) -> HloInstruction:
    m, n, k = (p.integer(2, 4) for _ in range(3))
    dims = p.choose(((m, n, k), (m * n, k), (m, n, 1, k)))
    other = p.choose(((m * n, 1, k), (1, m, n, k), (m, 1, n, k)))
    x = p.b.reshape(p.value(p.element_type(REAL), dims), other)
    leading = range(len(other) - 1)
    kind = p.choose((ReductionKind.SUM, ReductionKind.MAX))
    return p.b.reduce(x, leading if p.chance() else [len(other) - 1], kind)


@form
def multiply_by_mask(p: Program) -> HloInstruction:
    kind, dims = p.element_type(INTEGERS), p.dims()
    mask = p.b.convert(p.value(PrimitiveType.PRED, dims), kind)
    return p.b.multiply(*p.shuffled((mask, p.value(kind, dims))))


@form
def dot_over_one(p: Program) -> HloInstruction:
    kind, batch = p.element_type(REAL), p.integer(1, 3)
    left = p.value(kind, (p.integer(1, 4), 1, batch))
    right = p.value(kind, (batch, 1, p.integer(1, 4)))
    return p.b.dot(left, right, DotAttrs((1,), (1,), (2,), (0,)))


@form
def dot_along_few(p: Program) -> HloInstruction:
    """Batches of two vectors, or of a matrix and a vector on either side, over one or two dimensions in any order."""
    kind, batch, k, m = p.element_type(REAL), p.integer(8, 11), p.integer(2, 4), p.integer(1, 2)
    rows = p.choose(((), (1,), (p.integer(2, 4),)))
    first, second = (p.value(kind, dims) for dims in ((*rows, k, batch, m), (m, batch, k)))
    n = len(rows)
    ours, theirs = (n + 1,), (1,)
    if p.chance():
        return p.b.dot(first, second, DotAttrs((n, n + 2), (2, 0), ours, theirs))
    return p.b.dot(second, first, DotAttrs((2, 0), (n, n + 2), theirs, ours))


@form
def dot_of_repeated(p: Program) -> HloInstruction:
    kind, k, n = p.element_type(REAL), p.integer(2, 5), p.integer(2, 4)
    x = p.value(kind, (p.integer(1, 4), k))
    row = p.b.broadcast(p.value(kind, (k,)), (0,), (k, n))
    if p.chance():
        return p.b.dot(x, row, DotAttrs((1,), (0,)))
    return p.b.dot(row, x, DotAttrs((0,), (1,)))


@form
def contract_in_order(p: Program) -> HloInstruction:
    kind, k, n = p.element_type(REAL), p.integer(2, 4), p.integer(2, 4)
    left, right = p.value(kind, (k, n, p.integer(1, 4))), p.value(kind, (p.integer(1, 3), k, n))
    return p.b.dot(left, right, DotAttrs((1, 0), (2, 1)))


#: Pairs of types: all values of the first are values of the second.
_WIDENINGS = (
    (PrimitiveType.BF16, PrimitiveType.F32),
    (PrimitiveType.F16, PrimitiveType.F32),
    (PrimitiveType.F32, PrimitiveType.F64),
    (PrimitiveType.S8, S32),
    (PrimitiveType.U8, S32),
)


@form
def dot_of_widened(p: Program) -> HloInstruction:
    narrow, wide = p.choose(_WIDENINGS)
    m, k, n = p.integer(1, 4), p.integer(2, 5), p.integer(1, 4)
    left = p.b.convert(p.value(narrow, (m, k)), wide)
    right = p.value(wide, (k, n)) if p.chance() else p.b.convert(p.value(narrow, (k, n)), wide)
    if p.chance():
        return p.b.dot(left, right, DotAttrs((1,), (0,)))
    return p.b.dot(right, left, DotAttrs((0,), (1,)))


@form
def ragged_dot_of_widened(p: Program) -> HloInstruction:
    narrow, wide = p.choose(_WIDENINGS)
    m, k, n, groups = p.integer(1, 4), p.integer(2, 5), p.integer(1, 4), p.integer(1, 3)
    left = p.b.convert(p.value(narrow, (m, k)), wide)
    right = p.value(wide, (groups, k, n))
    if p.chance():
        right = p.b.convert(p.value(narrow, (groups, k, n)), wide)
    attrs = RaggedDotAttrs(DotAttrs((1,), (1,)), (0,), (0,))
    return p.b.create(Opcode.RAGGED_DOT, (left, right, p.value(S32, (groups,))), attrs)


@form
def ragged_dot_of_a_batch(p: Program) -> HloInstruction:
    kind, batch, k = p.element_type(REAL), p.integer(2, 4), p.integer(2, 4)
    left = p.value(kind, (batch, p.integer(1, 3), k))
    right = p.value(kind, (k, batch, p.integer(1, 3)))
    attrs = RaggedDotAttrs(DotAttrs((2,), (0,), (0,), (1,)), (0,))
    sizes = p.value(S32, (p.integer(1, 3),))
    return p.b.create(Opcode.RAGGED_DOT, (left, right, sizes), attrs)


@form
def transpose_keeps_rows(p: Program) -> HloInstruction:
    kind, batch, k = p.element_type(REAL), p.integer(1, 3), p.integer(1, 4)
    left = p.value(kind, (batch, p.integer(2, 4), p.integer(2, 4), k))
    dot = p.b.dot(
        left, p.value(kind, (batch, k, p.integer(2, 4))), DotAttrs((3,), (1,), (0,), (0,))
    )
    return p.b.transpose(dot, p.choose(((0, 1, 3, 2), (3, 0, 1, 2), (1, 3, 0, 2))))


# ---- what constants decide
@form
def add_constants(p: Program) -> HloInstruction:
    x = p.value(p.element_type(INTEGERS), p.dims())

    def plus(y: HloInstruction) -> HloInstruction:
        constant = p.b.full(x.array_shape, p.integer(1, 100))
        if p.chance():
            return p.b.subtract(y, constant)
        return p.b.add(*p.shuffled((y, constant)))

    return plus(plus(x))


@form
def compare_of_select(p: Program) -> HloInstruction:
    kind, dims = p.element_type(REAL), p.dims()
    one, two, three = (p.b.full(ArrayShape(kind, dims), p.choose((0, 1, 2))) for _ in range(3))
    # one predicate may choose for all elements
    predicate = p.value(PrimitiveType.PRED, p.choose((dims, ())))
    chosen = p.b.select(predicate, one, two)
    direction = p.choose(("EQ", "NE", "LT", "LE", "GT", "GE"))
    return p.b.compare(*p.shuffled((chosen, three)), direction)


@form
def not_of_compare(p: Program) -> HloInstruction:
    if p.chance():
        x, direction = p.value(p.element_type(NUMBERS), p.dims()), p.choose(("EQ", "NE"))
    else:
        x = p.value(p.element_type(INTEGERS), p.dims())
        direction = p.choose(("LT", "LE", "GT", "GE"))
    return p.b.logical_not(p.b.compare(x, p.like(x), direction))
