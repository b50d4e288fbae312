"""Multiply quantized values in 8 bits, instead of the values that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.ops.dot import dot_sizes
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape, PrimitiveType

_F8 = (PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2)
#: Types of the values that the 8-bit ones stand for, and of products.
_WIDE = (PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F32)
#: Operations that only move elements, and that may lie between a dequantized value and the product.
_MOVES = (Opcode.TRANSPOSE, Opcode.RESHAPE, Opcode.SLICE)
#: Operations whose result has the element of an operand that has only one.
_REPEATS = (Opcode.BROADCAST, Opcode.RESHAPE, Opcode.TRANSPOSE)
#: A library multiplies matrices of 8-bit elements if their sizes are multiples of this (cublasLtMatmul).
_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class _Quantized:
    """An operand of a product: ``values`` times the one element of ``scale``, or divided by it, after ``moves``.

    moves: the last one first.
    """

    values: HloInstruction
    moves: Sequence[HloInstruction]
    scale: HloInstruction | None = None
    is_divisor: bool = False


@register_pass
@dataclass(frozen=True)
class F8DotRewriter(OpExpander):
    """dot(convert(x) * broadcast(s), convert(w) * broadcast(t))     with x and w of 8-bit floats

        =>  convert(convert(dot(x, w)) * broadcast(s) * broadcast(t))

    Training in fp8 quantizes operands and dequantizes them again (flax's fp8_ops; XLA's gemm-rewriter does the same). A
    GPU multiplies 8-bit matrices in about half of the time, and the dequantized values need not be in memory. Either
    scale may be missing or a divisor; transposes, reshapes and slices may lie between. Sizes must be multiples of 16,
    and the types must not both be f8e5m2. Products of 8-bit values are exact in f32; the program rounds each
    dequantized value. On a logical program, sharded operands are gathered in 8 bits.
    """

    name: ClassVar[str] = "f8-dot-rewriter"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.LOGICAL, Stage.PARTITIONED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DOT,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        kind = x.array_shape.element_type
        if kind not in _WIDE or x.attrs_as(DotAttrs).extra or not _has_suitable_sizes(x):
            return None
        lhs, rhs = map(_quantized, x.operands)
        if lhs is None or rhs is None:
            return None
        if _type_of(lhs) is _type_of(rhs) is PrimitiveType.F8E5M2:
            return None
        # Sums over devices keep the type of the program, except f16, which unscaled sums may exceed.
        made = kind if kind is PrimitiveType.BF16 else PrimitiveType.F32
        product = b.dot(_moved(lhs, b), _moved(rhs, b), x.attrs_as(DotAttrs), element_type=made)
        product = b.as_type(product, PrimitiveType.F32)
        for operand in (lhs, rhs):
            if operand.scale is not None:
                scale = b.as_type(b.reshape_to(operand.scale, ()), PrimitiveType.F32)
                apply = b.divide if operand.is_divisor else b.multiply
                product = apply(product, b.broadcast_scalar(scale, x.dims))
        return b.as_type(product, kind)


def _has_suitable_sizes(x: HloInstruction) -> bool:
    """Return whether rows, columns and summed elements of the product ``x`` are multiples of ``_MULTIPLE``."""
    return all(size and size % _MULTIPLE == 0 for size in dot_sizes(x)[1])


def _quantized(x: HloInstruction) -> _Quantized | None:
    """Return what ``x`` is made of, or None if it is no dequantized value."""
    moves = []
    while x.opcode in _MOVES and isinstance(x.shape, ArrayShape):
        moves.append(x)
        x = x.operand(0)
    if x.opcode is Opcode.MULTIPLY:
        for values, factor in (x.operands, x.operands[::-1]):
            found, scale = _narrow(values), _scalar(factor)
            if found is not None and scale is not None:
                return _Quantized(found, moves, scale)
        return None
    if x.opcode is Opcode.DIVIDE:
        found, scale = _narrow(x.operand(0)), _scalar(x.operand(1))
        if found is None or scale is None:
            return None
        return _Quantized(found, moves, scale, is_divisor=True)
    found = _narrow(x)
    return None if found is None else _Quantized(found, moves)


def _narrow(x: HloInstruction) -> HloInstruction | None:
    """Return the 8-bit values of which ``x`` is a conversion, or None."""
    if x.opcode is not Opcode.CONVERT or x.array_shape.element_type not in _WIDE:
        return None
    values = x.operand(0)
    return values if values.array_shape.element_type in _F8 else None


def _scalar(x: HloInstruction) -> HloInstruction | None:
    """Return the value of one element that ``x`` has everywhere, or None."""
    while x.opcode in _REPEATS and x.array_shape.num_elements != 1:
        x = x.operand(0)
    return x if x.array_shape.num_elements == 1 else None


def _type_of(operand: _Quantized) -> PrimitiveType:
    return operand.values.array_shape.element_type


def _moved(operand: _Quantized, b: Builder) -> HloInstruction:
    """Return the 8-bit values after the moves of ``operand``."""
    value = operand.values
    for move in reversed(operand.moves):
        shape = replace(move.array_shape.without_layout(), element_type=_type_of(operand))
        value = b.create(move.opcode, (value,), move.attrs, shape=shape)
    return value
