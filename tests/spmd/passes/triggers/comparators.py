"""Comparators of sorts as frontends write them, for the triggers of passes about sorts."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program

_BITS = {
    PrimitiveType.F64: (PrimitiveType.S64, (1 << 63) - 1),
    PrimitiveType.F32: (PrimitiveType.S32, (1 << 31) - 1),
    PrimitiveType.F16: (PrimitiveType.S16, (1 << 15) - 1),
    PrimitiveType.BF16: (PrimitiveType.S16, (1 << 15) - 1),
}


def comparator(
    p: Program, kinds: list[PrimitiveType], by: int, tie: int | None = None
) -> HloComputation:
    """Return one that orders by operand ``by``, and then upwards by operand ``tie``."""
    shapes = [ArrayShape(kind, ()) for kind in kinds for _ in range(2)]
    b, parameters = p.computation("comparator", *shapes)
    forms = [_plain, _total]
    if kinds[by] in _BITS:
        forms += [_canonical, _bits]
    x, y, total = p.choose(forms)(b, parameters[2 * by], parameters[2 * by + 1])
    kind = "TOTALORDER" if total else ""
    direction = p.choose(("LT", "GT"))
    swapped = p.chance(0.3)
    less = _compare(b, y, x, {"LT": "GT", "GT": "LT"}[direction], kind) if swapped else None
    less = _compare(b, x, y, direction, kind) if less is None else less
    if tie is not None:
        equal = _compare(b, x, y, "EQ", kind)
        rest = b.compare(parameters[2 * tie], parameters[2 * tie + 1], "LT")
        less = b.binary(Opcode.OR, less, b.logical_and(equal, rest))
    return p.returns(less)


def _compare(
    b: Builder, x: HloInstruction, y: HloInstruction, direction: str, kind: str
) -> HloInstruction:
    return b.create(Opcode.COMPARE, (x, y), CompareAttrs(direction, kind))


Pair = tuple[HloInstruction, HloInstruction, bool]


def _plain(_: Builder, x: HloInstruction, y: HloInstruction) -> Pair:
    return x, y, False


def _total(_: Builder, x: HloInstruction, y: HloInstruction) -> Pair:
    return x, y, x.array_shape.element_type.is_floating


def _canonical(b: Builder, x: HloInstruction, y: HloInstruction) -> Pair:
    """Zeros are equal and so are NaN, as JAX writes it."""

    def of(v: HloInstruction) -> HloInstruction:
        zero, nan = b.scalar_like(v, 0), b.scalar_like(v, float("nan"))
        v = b.select(b.compare(v, zero, "EQ"), zero, v)
        return b.select(b.compare(v, v, "NE"), nan, v)

    return of(x), of(y), True


def _bits(b: Builder, x: HloInstruction, y: HloInstruction) -> Pair:
    """Integers in the floats' total order, as XLA's own frontends write it."""
    kind, most = _BITS[x.array_shape.element_type]

    def of(v: HloInstruction) -> HloInstruction:
        bits = b.create(Opcode.BITCAST_CONVERT, (v,), shape=ArrayShape(kind, ()))
        flipped = b.binary(Opcode.XOR, bits, b.scalar(kind, most))
        return b.select(b.compare(bits, b.scalar(kind, 0), "LT"), flipped, bits)

    return of(x), of(y), False
