"""convert: to the same type, there and back, and through a type that keeps every value."""

from __future__ import annotations

import ml_dtypes

from spmd.analysis.value_trace import integer_fits
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.passes.algebraic.match import element_type
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType


@simplifies(Opcode.CONVERT)
def convert_to_itself(x: HloInstruction, _: Builder) -> HloInstruction | None:
    """convert to the same type => x"""
    return x.operand(0) if element_type(x) is element_type(x.operand(0)) else None


@simplifies(Opcode.CONVERT)
def convert_through_wider(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """convert(convert(x: A to B): B to C) => convert(x: A to C) where B holds every value of A"""
    inner = x.operand(0)
    if inner.opcode is not Opcode.CONVERT:
        return None
    source, middle = element_type(inner.operand(0)), element_type(inner)
    if not keeps_every_value(source, middle) or not _commutes(source, middle, element_type(x)):
        return None
    return b.convert(inner.operand(0), element_type(x))


def keeps_every_value(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Return whether a conversion to ``target`` and back gives the same value."""
    if source is target:
        return True
    if source is PrimitiveType.PRED:
        return True
    if source.is_integer and target.is_integer:
        return integer_fits(source, target)
    if source.is_floating and target.is_floating:
        return _float_fits(source, target)
    return False


def _float_fits(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Return whether a conversion is a known lossless one: a widening to f32 or f64."""
    if target.bits <= source.bits or target not in (PrimitiveType.F32, PrimitiveType.F64):
        return False
    narrow, wide = ml_dtypes.finfo(source.numpy), ml_dtypes.finfo(target.numpy)  # type: ignore[no-untyped-call]
    return bool(
        wide.nmant >= narrow.nmant and wide.maxexp >= narrow.maxexp and wide.minexp <= narrow.minexp
    )


def _commutes(source: PrimitiveType, middle: PrimitiveType, target: PrimitiveType) -> bool:
    """Return whether A to C gives the same results as A to B to C, if B holds every value of A.

    A conversion depends on the value and on whether it is an integer or a floating-point number (out of range, integers
    wrap around).
    """
    return (
        source is PrimitiveType.PRED or target is source or source.is_integer == middle.is_integer
    )
