"""Modules that set off the identities of elementwise operations."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode import ReducePrecisionAttrs
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.algebraic_forms import form
from tests.spmd.passes.triggers.programs import ANY_TYPE, FLOATS, INTEGERS, NUMBERS, Program

PRED = PrimitiveType.PRED
UNSIGNED = tuple(t for t in INTEGERS if t.is_unsigned_integer)
SIGNED = tuple(t for t in INTEGERS if t.is_signed_integer)
BITS = (*INTEGERS, PRED)


def _some(p: Program, among: tuple[PrimitiveType, ...] = NUMBERS) -> HloInstruction:
    return p.value(p.element_type(among), p.dims())


def _swapped(p: Program, opcode: Opcode, x: HloInstruction, y: HloInstruction) -> HloInstruction:
    return p.b.binary(opcode, *p.shuffled((x, y)))


# ---- arithmetic
@form
def add_zero(p: Program) -> HloInstruction:
    x = _some(p)
    return _swapped(p, Opcode.ADD, x, p.b.full(x.array_shape, 0))


@form
def add_negated(p: Program) -> HloInstruction:
    x = _some(p)
    return _swapped(p, Opcode.ADD, x, p.b.negate(p.like(x)))


@form
def subtract_zero(p: Program) -> HloInstruction:
    if p.chance(0.3):
        x = _some(p, INTEGERS)
        return p.b.subtract(x, x)
    x = _some(p)
    return p.b.subtract(x, p.b.full(x.array_shape, 0) if p.chance() else p.b.negate(p.like(x)))


@form
def multiply_by_one(p: Program) -> HloInstruction:
    if p.chance(0.3):
        x = _some(p, INTEGERS)
        return _swapped(p, Opcode.MULTIPLY, x, p.b.full(x.array_shape, 0))
    x = _some(p, (*FLOATS, *SIGNED))
    return _swapped(p, Opcode.MULTIPLY, x, p.b.full(x.array_shape, p.choose((1, -1))))


@form
def both_negated(p: Program) -> HloInstruction:
    x = _some(p, FLOATS)
    opcode = p.choose((Opcode.MULTIPLY, Opcode.DIVIDE))
    return p.b.binary(opcode, p.b.negate(x), p.b.negate(p.like(x)))


@form
def divide_by_power_of_two(p: Program) -> HloInstruction:
    x = _some(p, FLOATS)
    divisor = p.choose((1, -1)) * 2.0 ** p.integer(-12, 12)
    return p.b.divide(x, p.b.full(x.array_shape, divisor))


@form
def remainder_of_one(p: Program) -> HloInstruction:
    x = _some(p, INTEGERS)
    return p.b.remainder(x, p.b.full(x.array_shape, 1))


@form
def negate_twice(p: Program) -> HloInstruction:
    return p.b.negate(p.b.negate(_some(p)))


@form
def neutral_extreme(p: Program) -> HloInstruction:
    x = _some(p, FLOATS)
    opcode = p.choose((Opcode.MAXIMUM, Opcode.MINIMUM))
    if p.chance():
        return p.b.binary(opcode, x, x)
    neutral = float("-inf") if opcode is Opcode.MAXIMUM else float("inf")
    return _swapped(p, opcode, x, p.b.full(x.array_shape, neutral))


@form
def small_power(p: Program) -> HloInstruction:
    x = _some(p, FLOATS)
    return p.b.binary(Opcode.POWER, x, p.b.full(x.array_shape, p.choose((1, 2))))


# ---- bits
@form
def neutral_or_absorbing(p: Program) -> HloInstruction:
    x = _some(p, BITS)
    opcode = p.choose((Opcode.AND, Opcode.OR))
    if p.chance(0.2):
        return p.b.binary(opcode, x, x)
    ones = 1 if x.array_shape.element_type is PRED else _all_ones(x.array_shape.element_type)
    return _swapped(p, opcode, x, p.b.full(x.array_shape, p.choose((0, ones))))


def _all_ones(kind: PrimitiveType) -> int:
    return -1 if kind.is_signed_integer else 2**kind.bits - 1


@form
def not_twice(p: Program) -> HloInstruction:
    return p.b.logical_not(p.b.logical_not(_some(p, BITS)))


# ---- comparisons
@form
def with_itself(p: Program) -> HloInstruction:
    x = _some(p, BITS)
    return p.b.compare(x, x, p.choose(("EQ", "NE", "LT", "LE", "GT", "GE")))


@form
def with_truth(p: Program) -> HloInstruction:
    x = _some(p, (PRED,))
    pair = p.shuffled((x, p.b.full(x.array_shape, p.chance())))
    return p.b.compare(pair[0], pair[1], p.choose(("EQ", "NE")))


@form
def out_of_range(p: Program) -> HloInstruction:
    if p.chance():
        x = _some(p, UNSIGNED)
        zeros = p.b.full(x.array_shape, 0)
        return p.b.compare(x, zeros, "GE") if p.chance() else p.b.compare(zeros, x, "GT")
    dims = p.dims(1)
    axis = p.integer(0, len(dims) - 1)
    count = p.b.iota(p.choose((PrimitiveType.S32, PrimitiveType.U32)), dims, axis)
    limit = p.b.full(count.array_shape, max(1, dims[axis]) + p.integer(0, 2))
    return p.b.compare(count, limit, p.choose(("LT", "GE", "NE", "EQ")))


@form
def compare_of_rectified(p: Program) -> HloInstruction:
    x = p.parameter(ArrayShape(PrimitiveType.F32, (p.integer(1, 4), 3)))
    w = p.parameter(ArrayShape(PrimitiveType.F32, (3, p.integer(1, 4))))
    y = p.b.dot(x, w, DotAttrs((1,), (0,)))
    zeros = p.b.full(y.array_shape, 0)
    z = p.b.negate(y) if p.chance() else y
    r = p.b.binary(Opcode.MAXIMUM, *p.shuffled((z, zeros)))
    positive = p.b.compare(z, zeros, "GT") if p.chance() else p.b.compare(zeros, z, "GE")
    return p.b.select(positive, r, p.like(y))


# ---- choices
@form
def known_predicate(p: Program) -> HloInstruction:
    x = _some(p, ANY_TYPE)
    shape = ArrayShape(PRED, x.dims)
    if p.chance(0.3):
        return p.b.select(p.parameter(shape), x, x)
    return p.b.select(p.b.full(shape, p.chance()), x, p.like(x))


@form
def predicate_as_value(p: Program) -> HloInstruction:
    x = _some(p, (PRED,))
    return p.b.select(x, *p.shuffled((p.b.full(x.array_shape, 0), p.b.full(x.array_shape, 1))))


@form
def nested_same_predicate(p: Program) -> HloInstruction:
    x = _some(p, ANY_TYPE)
    predicate = p.value(PRED, x.dims)
    inner = p.b.select(predicate, x, p.like(x))
    return p.b.select(predicate, *p.shuffled((inner, p.like(x))))


# ---- conversions
@form
def convert_to_itself(p: Program) -> HloInstruction:
    x = _some(p, ANY_TYPE)
    return p.b.convert(x, x.array_shape.element_type)


@form
def convert_through_wider(p: Program) -> HloInstruction:
    narrow, wide = p.choose(_WIDENING)
    final = p.choose((narrow, PrimitiveType.F64 if wide.is_floating else PrimitiveType.S64))
    return p.b.convert(p.b.convert(_some(p, (narrow,)), wide), final)


_WIDENING = (
    (PrimitiveType.BF16, PrimitiveType.F32),
    (PrimitiveType.F16, PrimitiveType.F32),
    (PrimitiveType.F32, PrimitiveType.F64),
    (PrimitiveType.S8, PrimitiveType.S32),
    (PrimitiveType.U8, PrimitiveType.S32),
    (PRED, PrimitiveType.S32),
)


@form
def reduce_precision_to_itself(p: Program) -> HloInstruction:
    attrs = ReducePrecisionAttrs(p.integer(2, 8), p.integer(1, 10))
    once = p.b.create(Opcode.REDUCE_PRECISION, (_some(p, FLOATS),), attrs)
    return p.b.create(Opcode.REDUCE_PRECISION, (once,), attrs)


@form
def copy_is_identity(p: Program) -> HloInstruction:
    return p.b.copy(_some(p, ANY_TYPE))


@form
def bitcast_to_itself(p: Program) -> HloInstruction:
    x = _some(p, ANY_TYPE)
    return p.b.create(Opcode.BITCAST, (x,), shape=x.shape)


@form
def bitcast_convert_to_itself(p: Program) -> HloInstruction:
    pairs = (
        (PrimitiveType.F32, PrimitiveType.S32),
        (PrimitiveType.U32, PrimitiveType.F32),
        (PrimitiveType.F16, PrimitiveType.BF16),
    )
    kind, other = p.choose(pairs)
    x = _some(p, (kind,))
    middle = x if p.chance(0.3) else _bitcast_convert(p, x, other)
    return _bitcast_convert(p, middle, kind)


def _bitcast_convert(p: Program, x: HloInstruction, kind: PrimitiveType) -> HloInstruction:
    return p.b.create(Opcode.BITCAST_CONVERT, (x,), shape=ArrayShape(kind, x.dims))
