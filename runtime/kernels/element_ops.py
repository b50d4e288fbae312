"""Elementwise operations as NumPy calls that write into a given array.

Results equal the reference evaluator's: a call here is taken only where it computes the same, otherwise the evaluator's
own function runs and its result is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator import elementwise as _reference  # noqa: F401 - registers the functions
from spmd.evaluator.registry import EVALUATORS
from spmd.hlo import NO_ATTRS, Attrs, HloInstruction, Opcode
from spmd.literal import NDArray
from spmd.ops.attrs import CompareAttrs
from spmd.shape import ArrayShape, PrimitiveType

#: Write the result into the first array, given the operands.
ElementFunction: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ElementOp:
    """One operation on registers: inputs first, then one register per operation, in order."""

    opcode: Opcode
    operands: tuple[int, ...]
    operand_types: tuple[PrimitiveType, ...]
    element_type: PrimitiveType
    attrs: Attrs = NO_ATTRS


_UFUNCS: dict[Opcode, np.ufunc] = {
    Opcode.ADD: np.add,
    Opcode.AND: np.bitwise_and,
    Opcode.CEIL: np.ceil,
    Opcode.FLOOR: np.floor,
    Opcode.MAXIMUM: np.maximum,
    Opcode.MINIMUM: np.minimum,
    Opcode.MULTIPLY: np.multiply,
    Opcode.NEGATE: np.negative,
    Opcode.OR: np.bitwise_or,
    Opcode.XOR: np.bitwise_xor,
}
#: For f32, f64 and complex alone.
_NATIVE_FLOAT_UFUNCS: dict[Opcode, np.ufunc] = {
    Opcode.ACOS: np.arccos,
    Opcode.ACOSH: np.arccosh,
    Opcode.ASIN: np.arcsin,
    Opcode.ASINH: np.arcsinh,
    Opcode.ATANH: np.arctanh,
    Opcode.COSH: np.cosh,
    Opcode.COSINE: np.cos,
    Opcode.DIVIDE: np.divide,
    Opcode.EXPONENTIAL: np.exp,
    Opcode.EXPONENTIAL_MINUS_ONE: np.expm1,
    Opcode.LOG: np.log,
    Opcode.LOG_PLUS_ONE: np.log1p,
    Opcode.POWER: np.power,
    Opcode.SINE: np.sin,
    Opcode.SINH: np.sinh,
    Opcode.SQRT: np.sqrt,
    Opcode.SUBTRACT: np.subtract,
    Opcode.TAN: np.tan,
    Opcode.TANH: np.tanh,
}
#: For f32 and f64 alone.
_REAL_FLOAT_UFUNCS: dict[Opcode, np.ufunc] = {
    Opcode.ATAN2: np.arctan2,
    Opcode.REMAINDER: np.fmod,
    Opcode.ROUND_NEAREST_EVEN: np.rint,
}
_COMPARE: dict[str, np.ufunc] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_NATIVE_FLOATS = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.C64, PrimitiveType.C128)


def element_function(op: ElementOp) -> ElementFunction:
    """The function that computes ``op``: called as f(out, *operands)."""
    return _direct(op) or _through_reference(op)


def is_direct(op: ElementOp) -> bool:
    """Computed without arrays of NumPy's own making."""
    return _direct(op) is not None


def _is_plain(kind: PrimitiveType) -> bool:
    """NumPy computes in this type itself (not in a wider one)."""
    return kind in _NATIVE_FLOATS or (kind.is_integer and kind.bits >= 8)


def _direct(op: ElementOp) -> ElementFunction | None:
    kind = op.operand_types[0]
    if op.opcode is Opcode.SELECT:
        return _select
    if op.opcode is Opcode.CLAMP and _is_plain(op.element_type):
        return _clamp
    if op.opcode is Opcode.COMPARE:
        return _compare(op, kind)
    if op.opcode is Opcode.CONVERT:
        return _convert(op, kind)
    if op.opcode is Opcode.COMPLEX:
        return _complex
    if op.opcode is Opcode.ABS and (_is_plain(kind) and not kind.is_unsigned_integer):
        return _into(np.absolute)
    if op.opcode is Opcode.NOT:
        return _not(kind)
    if kind in _NATIVE_FLOATS and op.element_type is kind:
        if op.opcode is Opcode.RSQRT:
            return _rsqrt
        if op.opcode is Opcode.LOGISTIC:
            return _logistic
        if (ufunc := _NATIVE_FLOAT_UFUNCS.get(op.opcode)) is not None:
            return _into(ufunc)
        if kind.is_floating and (ufunc := _REAL_FLOAT_UFUNCS.get(op.opcode)) is not None:
            return _into(ufunc)
    if _is_plain(kind) or kind is PrimitiveType.PRED:
        if kind is PrimitiveType.PRED and op.opcode is Opcode.NEGATE:
            return None
        if op.opcode is Opcode.SUBTRACT and kind.is_integer:
            return _into(np.subtract)
        if (ufunc := _UFUNCS.get(op.opcode)) is not None:
            return _into(ufunc)
    return None


def _into(ufunc: np.ufunc) -> ElementFunction:
    def call(out: NDArray, *operands: NDArray) -> None:
        ufunc(*operands, out=out)

    return call


def _complex(out: NDArray, real: NDArray, imaginary: NDArray) -> None:
    np.copyto(out.real, real)
    np.copyto(out.imag, imaginary)


def _not(kind: PrimitiveType) -> ElementFunction | None:
    if kind is PrimitiveType.PRED:
        return _into(np.logical_not)
    return _into(np.invert) if _is_plain(kind) else None


def _rsqrt(out: NDArray, x: NDArray) -> None:
    np.sqrt(x, out=out)
    np.divide(x.dtype.type(1), out, out=out)


def _logistic(out: NDArray, x: NDArray) -> None:
    one = x.dtype.type(1)
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, one, out=out)
    np.divide(one, out, out=out)


def _select(out: NDArray, pred: NDArray, on_true: NDArray, on_false: NDArray) -> None:
    """``out`` may be the memory of ``on_false``, of no other operand."""
    np.copyto(out, on_false)
    np.copyto(out, on_true, where=pred)


def _clamp(out: NDArray, low: NDArray, value: NDArray, high: NDArray) -> None:
    """``out`` may be the memory of ``value``, of no other operand."""
    np.maximum(value, low, out=out)
    np.minimum(high, out, out=out)


def _compare(op: ElementOp, kind: PrimitiveType) -> ElementFunction | None:
    attrs = op.attrs
    assert isinstance(attrs, CompareAttrs)
    if attrs.type == "TOTALORDER" or not (_is_plain(kind) or kind is PrimitiveType.PRED):
        return None
    return _into(_COMPARE[attrs.direction])


def _convert(op: ElementOp, source: PrimitiveType) -> ElementFunction | None:
    """Casts in which NumPy and HLO agree: to wider or rounded floats, and between whole-byte integers."""
    target = op.element_type
    to_float = target in _NATIVE_FLOATS and (
        source.is_floating
        or source is PrimitiveType.PRED
        or (source.is_integer and source.bits >= 8)
    )
    if source.is_complex and not target.is_complex:
        return None
    narrowing = source is PrimitiveType.F32 and target in (PrimitiveType.BF16, PrimitiveType.F16)
    integers = (source is PrimitiveType.PRED or (source.is_integer and source.bits >= 8)) and (
        target.is_integer and target.bits >= 8
    )
    if to_float or narrowing or integers:
        return _cast
    return None


def _cast(out: NDArray, x: NDArray) -> None:
    np.copyto(out, x, casting="unsafe")


def _through_reference(op: ElementOp) -> ElementFunction:
    instruction = HloInstruction(op.opcode, ArrayShape(op.element_type, ()), attrs=op.attrs)
    evaluate = EVALUATORS.get(op.opcode)
    if evaluate is None:
        raise UnsupportedError(f"no elementwise function for {op.opcode}")

    def call(out: NDArray, *operands: NDArray) -> None:
        value = evaluate(instruction, operands)
        assert isinstance(value, np.ndarray)
        np.copyto(out, value)

    return call


def may_overwrite(op: ElementOp) -> tuple[int, ...]:
    """Positions of the operands in whose memory the result may be written while they are read."""
    if op.opcode is Opcode.SELECT:
        candidates: tuple[int, ...] = (2,)
    elif op.opcode is Opcode.CLAMP:
        candidates = (1,)
    else:
        candidates = tuple(range(len(op.operands)))
    size = op.element_type.byte_size
    return tuple(i for i in candidates if op.operand_types[i].byte_size == size)
