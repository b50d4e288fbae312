"""LLVM IR that combines elements of a reduction, bitwise equal to ``collectives.communicator.group``."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.group import accumulator_type
from runtime.codegen.elements import bfloat16
from runtime.codegen.elements.instructions import PLAIN, Instructions
from runtime.codegen.elements.small_floats import conversions
from runtime.program.scalar_program import Provenance
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import identity_value
from spmd.shape import PrimitiveType

Dtype: TypeAlias = np.dtype[Any]


@dataclass(frozen=True)
class Element:
    """LLVM types in which elements are stored and computed, and the bodies of the conversions between them.

    ``widen`` converts ``%x`` of type ``stored`` to ``%y`` of type ``wide``; ``narrow`` converts back and rounds once.
    An empty body stands for a conversion between equal types. ``parts`` is the number of such values in one element of
    the array, which is 2 for complex numbers.
    """

    stored: str
    wide: str
    widen: str = ""
    narrow: str = ""
    parts: int = 1


@cache
def element_of(
    dtype: Dtype, provenance: Provenance = Provenance.ANYWHERE, instructions: Instructions = PLAIN
) -> Element:
    """Return the types and conversions of ``dtype``, which computes in its accumulator's type.

    ``provenance`` tells which values are narrowed; some need no rounding.
    """
    kind = PrimitiveType.from_numpy(dtype)
    if kind is PrimitiveType.BF16:
        narrowing = bfloat16.narrowing(provenance, instructions)
        return Element("i16", "float", bfloat16.widening(), narrowing.body)
    if kind is PrimitiveType.F16:
        return Element(
            "half", "float", "%y = fpext half %x to float", "%y = fptrunc float %x to half"
        )
    if kind.is_floating and kind.byte_size == 1:
        return Element("i8", "float", *conversions(kind))
    if kind.is_integer and kind.bits < 8:
        return Element("i8", "i8", *_small_integer(kind.bits, kind.is_signed_integer))
    if kind.is_complex:
        return Element(*("float" if kind is PrimitiveType.C64 else "double",) * 2, parts=2)
    if kind.is_floating:
        return Element(*("float" if kind is PrimitiveType.F32 else "double",) * 2)
    return Element(*(f"i{kind.byte_size * 8}",) * 2)


def conversion_ir(name: str, source: str, target: str, body: str = "") -> str:
    """Return the function ``name`` of a conversion; ``body`` is that of ``Element.widen`` or ``narrow``."""
    result = "%y" if body else "%x"
    return (
        f"define internal {target} @{name}({source} %x) alwaysinline {{\n"
        f"  {body}\n  ret {target} {result}\n}}"
    )


_EXTREME = """%first = fcmp {condition} {t} %a, %b
  %further = select {b} %first, {t} %a, {t} %b
  %number = fcmp ord {t} %a, %a
  %r = select {b} %number, {t} %further, {t} %a"""
_FLOAT_OPERATIONS: dict[ReductionKind, str] = {
    ReductionKind.SUM: "%r = fadd {t} %a, %b",
    ReductionKind.PRODUCT: "%r = fmul {t} %a, %b",
    # As in NumPy, the result is the first nan if there is one, and of two equal values (zeros of
    # either sign) the second. The inner compare and select are one instruction on processors whose
    # maximum returns the second operand if an operand is nan.
    ReductionKind.MIN: _EXTREME.format(condition="olt", b="{b}", t="{t}"),
    ReductionKind.MAX: _EXTREME.format(condition="ogt", b="{b}", t="{t}"),
}
_INTEGER_OPERATIONS: dict[ReductionKind, str] = {
    ReductionKind.SUM: "%r = add {t} %a, %b",
    ReductionKind.PRODUCT: "%r = mul {t} %a, %b",
    ReductionKind.MIN: "%c = icmp {s}lt {t} %a, %b\n  %r = select {b} %c, {t} %a, {t} %b",
    ReductionKind.MAX: "%c = icmp {s}gt {t} %a, %b\n  %r = select {b} %c, {t} %a, {t} %b",
    ReductionKind.AND: "%r = and {t} %a, %b",
    ReductionKind.OR: "%r = or {t} %a, %b",
    ReductionKind.XOR: "%r = xor {t} %a, %b",
}
#: Reductions whose result is one of the operands, so that narrowing it needs no rounding.
_CHOOSING = (ReductionKind.MIN, ReductionKind.MAX)
_BOOLEAN = {
    ReductionKind.SUM: ReductionKind.OR,
    ReductionKind.PRODUCT: ReductionKind.AND,
    ReductionKind.MIN: ReductionKind.AND,
    ReductionKind.MAX: ReductionKind.OR,
}


#: LLVM's intrinsics for the larger and smaller of two floats, or nan if one of them is.
_EXTREME_INTRINSICS = {ReductionKind.MIN: "minimum", ReductionKind.MAX: "maximum"}


def combination(
    dtype: Dtype,
    reduction: ReductionKind,
    wide: str,
    lanes: int = 0,
    instructions: Instructions = PLAIN,
) -> str:
    """Return lines that compute ``%r`` from ``%a`` and ``%b`` of type ``wide``, or of vectors of ``lanes`` values."""
    if instructions.extremes and wide == "float" and reduction in _EXTREME_INTRINSICS:
        name = _EXTREME_INTRINSICS[reduction]
        return f"%r = call float @llvm.{name}.f32(float %a, float %b)"
    types = {"t": wide, "b": "i1"}
    if lanes:
        types = {key: f"<{lanes} x {value}>" for key, value in types.items()}
    if wide in ("float", "double"):
        return _FLOAT_OPERATIONS[reduction].format(**types)
    if dtype.kind == "b":
        reduction = _BOOLEAN.get(reduction, reduction)
    sign = "s" if accumulator_type(dtype).kind == "i" else "u"
    return _INTEGER_OPERATIONS[reduction].format(s=sign, **types)


@cache
def combining_ir(
    dtype: Dtype,
    reduction: ReductionKind,
    suffix: str = "",
    instructions: Instructions = PLAIN,
) -> tuple[str, ...]:
    """Return the functions @widen, @narrow and @combine, with ``suffix`` appended to their names.

    The first two convert between the stored type and the accumulator's type, in which @combine combines.
    """
    provenance = Provenance.CHOSEN if reduction in _CHOOSING else Provenance.COMPUTED
    element = element_of(dtype, provenance, instructions)
    stored, wide = element.stored, element.wide
    body = combination(dtype, reduction, wide, instructions=instructions)
    return (
        conversion_ir(f"widen{suffix}", stored, wide, element.widen),
        conversion_ir(f"narrow{suffix}", wide, stored, element.narrow),
        combiner_ir(f"combine{suffix}", wide, body),
    )


def combiner_ir(name: str, t: str, body: str) -> str:
    """Return the function ``name`` of two values of type ``t``, whose ``body`` computes ``%r`` of ``%a`` and ``%b``."""
    return (
        f"define internal {t} @{name}({t} %a, {t} %b) alwaysinline {{\n  {body}\n  ret {t} %r\n}}"
    )


def neutral(kind: PrimitiveType, reduction: ReductionKind) -> str:
    """Return an instruction that makes the neutral element in the accumulator's type. That of float sums is -0.0."""
    wide = element_of(kind.numpy).wide
    value = identity_value(reduction, kind)
    if wide in ("float", "double"):
        if reduction is ReductionKind.SUM:
            value = -0.0
        array = np.array(value, {"float": np.float32, "double": np.float64}[wide])
        bits = int.from_bytes(array.tobytes(), "little")
        return f"bitcast i{array.itemsize * 8} {bits} to {wide}"
    assert isinstance(value, int)
    return f"bitcast {wide} {int(value)} to {wide}"


def _small_integer(bits: int, signed: bool) -> tuple[str, str]:
    """Return the conversions of integers below 8 bits, stored in the low bits of a byte whose other bits are 0."""
    shift = "ashr" if signed else "lshr"
    return (
        f"%up = shl i8 %x, {8 - bits}\n  %y = {shift} i8 %up, {8 - bits}",
        f"%y = and i8 %x, {(1 << bits) - 1}",
    )
