"""Linear algebra and what lies near it: ragged and scaled products, transforms, factorizations, normalization."""

from __future__ import annotations

import math

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import (
    BatchNormAttrs,
    CholeskyAttrs,
    DimensionsAttrs,
    DotAttrs,
    FftAttrs,
    RaggedDotAttrs,
    TriangularSolveAttrs,
)
from spmd.shape import ArrayShape
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, MAX_ELEMENTS, S32, Value, Writer


@operation(1, Opcode.RAGGED_DOT)
def ragged_dot(w: Writer) -> Value | None:
    """[m, k] x [g, k, n] -> [m, n], dimensions in any place; group sizes may leave rows over, or want too many."""
    x = w.pick(lambda v: v.rank == 2 and v.dtype is F32)
    x = x if x is not None and w.chance(0.7) else w.of(F32, w.dims(2))
    ragged = w.integer(0, 1)
    depth, groups, columns = x.dims[1 - ragged], w.size() or 1, w.size()
    place = w.shuffled(range(3))
    dims = [0, 0, 0]
    for size, at in zip((groups, depth, columns), place, strict=True):
        dims[at] = size
    if math.prod(dims) > MAX_ELEMENTS or x.dims[ragged] * columns > MAX_ELEMENTS:
        return None
    y = w.of(F32, tuple(dims))
    if not may_sum(x, depth, y.bound):
        return None
    b = w.builder
    sizes = w.small(w.of(S32, (groups,)), 4)
    counts = b.unary(Opcode.ABS, sizes.hlo)
    attrs = RaggedDotAttrs(
        DotAttrs((1 - ragged,), (place[1],)), lhs_ragged_dims=(ragged,), rhs_group_dims=(place[0],)
    )
    hlo = b.create(
        Opcode.RAGGED_DOT,
        (x.hlo, y.hlo, counts),
        attrs,
        shape=ArrayShape(F32, (x.dims[ragged], columns)),
    )
    return summed(w, Value(hlo, 0.0), [x, y], x.bound * y.bound * depth)


@operation(0.7, Opcode.SCALED_DOT)
def scaled_dot(w: Writer) -> Value | None:
    """Each factor's elements share a scale by blocks of one or two."""
    x = w.pick(lambda v: v.rank == 2 and v.dtype is F32 and 0 not in v.dims)
    if x is None:
        x = w.of(F32, (w.size() or 1, w.size() or 1))
    y = w.of(F32, (x.dims[1], w.size() or 1))
    scales = [w.of(F32, tuple(n // (2 if n % 2 == 0 else 1) for n in v.dims)) for v in (x, y)]
    bound = math.prod(v.bound for v in (x, y, *scales)) * x.dims[1]
    attrs = DotAttrs((1,), (0,))
    operands = (x.hlo, y.hlo, *(s.hlo for s in scales))
    hlo = w.builder.create(
        Opcode.SCALED_DOT, operands, attrs, shape=ArrayShape(F32, (x.dims[0], y.dims[1]))
    )
    return summed(w, Value(hlo, 0.0), [x, y, *scales], bound)


@operation(1, Opcode.FFT)
def fft(w: Writer) -> Value | None:
    """The real part of a transform of one or two dimensions, complex or real on either side."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is F32 and 0 not in v.dims)
    if x is None:
        return None
    b = w.builder
    kind = w.choose(("FFT", "IFFT", "RFFT", "IRFFT"))
    length = list(x.dims[-w.integer(1, min(2, x.rank)) :])
    argument = x.hlo
    if kind != "RFFT":
        other = w.of(F32, x.dims)
        argument = b.create(Opcode.COMPLEX, (x.hlo, other.hlo))
    if kind == "IRFFT":
        length[-1] = 2 * (length[-1] - 1)
        if length[-1] == 0:
            return None
    shape = ArrayShape(F32, x.dims)
    hlo = b.create(Opcode.FFT, (argument,), FftAttrs(kind, tuple(length)), shape=shape)
    if kind != "IRFFT":
        hlo = b.create(w.opcode(Opcode.REAL, Opcode.IMAG), (hlo,))
    return w.keep(Value(hlo, 2 * x.bound * math.prod(length), whole=False, stable=False))


def _square(w: Writer) -> Value:
    """f32 [.., n, n] in [-1, 1]."""
    x = w.pick(lambda v: v.rank > 1 and v.dtype is F32 and v.dims[-1] == v.dims[-2] > 0)
    if x is None or w.chance(0.5):
        n = w.choose((1, 2, 3, 4, 5, 6))
        x = w.of(F32, (*w.dims(w.integer(0, 2)), n, n))
    b = w.builder
    return Value(
        b.clamp(b.scalar(F32, -1), x.hlo, b.scalar(F32, 1)), 1.0, whole=False, stable=x.stable
    )


def _dominant(w: Writer, x: Value) -> HloInstruction:
    """``x`` with 2n in its diagonal: positive definite whichever triangle is read, and easily solved."""
    b, n = w.builder, x.dims[-1]
    row, column = (b.iota(S32, x.dims, x.rank - 2), b.iota(S32, x.dims, x.rank - 1))
    diagonal = b.broadcast_scalar(b.scalar(F32, 2 * n), x.dims)
    return b.select(b.compare(row, column, "EQ"), diagonal, x.hlo)


@operation(1, Opcode.CHOLESKY)
def cholesky(w: Writer) -> Value | None:
    x = _square(w)
    if 0 in x.dims:
        return None
    attrs = CholeskyAttrs(lower=w.chance(0.5))
    hlo = w.builder.create(Opcode.CHOLESKY, (_dominant(w, x),), attrs)
    return w.keep(Value(hlo, 2.0 * x.dims[-1], whole=False, stable=False))


@operation(1, Opcode.TRIANGULAR_SOLVE)
def triangular_solve(w: Writer) -> Value | None:
    """A x = b or x A = b, A as it is or transposed, either triangle."""
    x = _square(w)
    n, left = x.dims[-1], w.chance(0.6)
    other = w.size() or 1
    matrix = (n, other) if left else (other, n)
    if 0 in x.dims or math.prod(x.dims[:-2]) * n * other > MAX_ELEMENTS:
        return None
    right = w.of(F32, (*x.dims[:-2], *matrix))
    transpose = w.choose(("NO_TRANSPOSE", "TRANSPOSE"))
    attrs = TriangularSolveAttrs(left, w.chance(0.5), False, transpose)
    hlo = w.builder.create(Opcode.TRIANGULAR_SOLVE, (_dominant(w, x), right.hlo), attrs)
    return w.keep(Value(hlo, right.bound, whole=False, stable=False))


@operation(1, Opcode.BATCH_NORM_TRAINING, Opcode.BATCH_NORM_INFERENCE, Opcode.BATCH_NORM_GRAD)
def batch_norm(w: Writer) -> Value | None:
    """Each of the three; variances are at least 1, so that nothing is divided by little."""
    x = w.pick(lambda v: v.rank > 1 and v.dtype is F32 and 0 not in v.dims)
    if x is None:
        return None
    b = w.builder
    feature = w.integer(0, x.rank - 1)
    per_feature = (x.dims[feature],)
    attrs = BatchNormAttrs(1.0, feature)
    scale, offset = w.of(F32, per_feature), w.of(F32, per_feature)
    count = math.prod(x.dims)
    opcode = w.opcode(
        Opcode.BATCH_NORM_TRAINING, Opcode.BATCH_NORM_INFERENCE, Opcode.BATCH_NORM_GRAD
    )
    if opcode is Opcode.BATCH_NORM_TRAINING:
        made = b.create(opcode, (x.hlo, scale.hlo, offset.hlo), attrs)
        bound = scale.bound * math.sqrt(count) + offset.bound
        for element, limit in ((1, x.bound), (2, x.bound**2)):
            part = b.get_tuple_element(made, element)
            w.keep(Value(part, limit, whole=False, stable=False))
        hlo = b.get_tuple_element(made, 0)
        return w.keep(Value(hlo, bound, whole=False, stable=False))
    mean, spread = w.of(F32, per_feature), w.of(F32, per_feature)
    variance = b.unary(Opcode.ABS, spread.hlo)
    if opcode is Opcode.BATCH_NORM_INFERENCE:
        hlo = b.create(opcode, (x.hlo, scale.hlo, offset.hlo, mean.hlo, variance), attrs)
        bound = scale.bound * (x.bound + mean.bound) + offset.bound
        return w.keep(Value(hlo, bound, whole=False, stable=False))
    gradient = w.of(F32, x.dims)
    made = b.create(opcode, (x.hlo, scale.hlo, mean.hlo, variance, gradient.hlo), attrs)
    centred = x.bound + mean.bound
    limit = gradient.bound * count * (1 + centred)
    w.keep(Value(b.get_tuple_element(made, 1), limit, whole=False, stable=False))
    w.keep(Value(b.get_tuple_element(made, 2), limit, whole=False, stable=False))
    hlo = b.get_tuple_element(made, 0)
    return w.keep(Value(hlo, scale.bound * limit * (1 + centred), whole=False, stable=False))


@operation(0.5, Opcode.GET_DIMENSION_SIZE)
def dimension_size(w: Writer) -> Value | None:
    """The size of the whole, not of a tile."""
    x = w.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    at = w.integer(0, x.rank - 1)
    hlo = w.builder.create(
        Opcode.GET_DIMENSION_SIZE,
        (x.hlo,),
        DimensionsAttrs((at,)),
        shape=ArrayShape(S32, ()),
    )
    return w.keep(Value(hlo, float(x.dims[at])))
