"""Exact elements of floating-point results, which no correct program has otherwise.

A number with few significant bits looks exact. In 16 bits a quarter of all numbers do, and some programs round to whole
numbers again and again (rows of a softmax add up to 1), so results of arithmetic that look exact are computed once more
in double precision, from which a rounded result differs. In 16 bits a small part of a unit counts as no difference: the
rounding of tanh(9) to 1 is the same in all programs. In wider types no result of a transcendental function is exact
unless the operand is zero or infinite: tanh(9) = 1 may be the number below 1 elsewhere.
"""

from __future__ import annotations

import numpy as np

from spmd.evaluator.elementwise import BINARY, UNARY
from spmd.evaluator.numerics import unsigned_view
from spmd.evaluator.registry import EVALUATORS
from spmd.evaluator.value import NDArray, Operands
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.ops.reduction import reduction_kind
from spmd.shape import IEEE_TYPES, PrimitiveType
from spmd.text.float_text import FLOAT_FORMATS

#: Mantissa bits of the types that rounding is judged in.
MANTISSA = {kind: FLOAT_FORMATS[kind].mantissa for kind in (*IEEE_TYPES, PrimitiveType.F8E4M3FN)}
#: Trailing zeros from which a value looks exact; 8-bit floats have too few bits for this test.
_ZEROS = {
    PrimitiveType.F64: 16,
    PrimitiveType.F32: 8,
    PrimitiveType.F16: 2,
    PrimitiveType.BF16: 2,
}
#: Types whose results double precision tells from rounded ones, with the part of a unit in the last place that counts
#: as no difference. Errors of f32 are about as small a part of a 16-bit unit.
_UNITS = {PrimitiveType.F32: 0.0, PrimitiveType.F16: 2.0**-6, PrimitiveType.BF16: 2.0**-6}

#: Functions whose results are transcendental if operands are neither 0 nor infinite, though they may round to 1.
TRANSCENDENTAL = frozenset(
    x for x, op in ELEMENTWISE_OPS.items() if op.accuracy and op.cost.exponentials
)


def has_few_bits(x: NDArray) -> NDArray:
    """Return which elements of floating-point `x` have few significant bits: whole numbers, zeros, infinities too."""
    kind = PrimitiveType.from_numpy(x.dtype)
    if kind not in _ZEROS:
        return np.zeros(x.shape, np.bool_)
    raw = unsigned_view(x)
    wide = x if kind.bits >= 32 else x.astype(np.float32)
    short = (raw & raw.dtype.type((1 << _ZEROS[kind]) - 1)) == 0
    is_integer = (np.rint(wide) == wide) & (np.abs(wide) < 2.0 ** MANTISSA[kind])
    return np.asarray(short | is_integer)


def exact_elements(
    instruction: HloInstruction, operands: Operands, value: NDArray
) -> NDArray | None:
    """Return which elements of `value`, the result of `instruction` for `operands`, are exact.

    They look exact and are the same in double precision, where the operation is known there. None for complex numbers
    and types without rounding.
    """
    kind = PrimitiveType.from_numpy(value.dtype)
    if kind not in MANTISSA:
        return None
    exact = has_few_bits(value)
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    if len(arrays) < len(operands):
        return exact
    if instruction.opcode in TRANSCENDENTAL and kind.bits >= 32:
        return np.asarray(exact & ~(np.isfinite(arrays[0]) & (arrays[0] != 0)))
    if kind not in _UNITS:
        return exact
    wide = value.astype(np.float64)
    doubtful = exact & np.isfinite(wide) & (wide != 0)
    double = _in_double(instruction, arrays, doubtful) if doubtful.any() else None
    if double is not None:
        unit = np.exp2(np.floor(np.log2(np.abs(wide[doubtful]))) - MANTISSA[kind])
        exact[doubtful] = np.abs(double - wide[doubtful]) <= _UNITS[kind] * unit
    return exact


def _in_double(
    instruction: HloInstruction, operands: list[NDArray], chosen: NDArray
) -> NDArray | None:
    """Return the `chosen` elements of the result in double precision; None where the operation is not known there."""
    if any(x.dtype.kind == "c" for x in operands):
        return None
    opcode = instruction.opcode
    if opcode in (Opcode.REDUCE, Opcode.REDUCE_WINDOW):
        evaluate = EVALUATORS.get(opcode)
        if evaluate is None or len(operands) != 2 or reduction_kind(instruction.to_apply) is None:
            return None
        total = evaluate(instruction, tuple(x.astype(np.float64) for x in operands))
        return total[chosen] if isinstance(total, np.ndarray) else None
    if any(x.shape != chosen.shape for x in operands):
        return None
    doubles = [x[chosen].astype(np.float64) for x in operands]
    if opcode is Opcode.CONVERT:
        return doubles[0]
    if opcode in UNARY:
        return np.asarray(UNARY[opcode](doubles[0]))
    return np.asarray(BINARY[opcode](*doubles)) if opcode in BINARY else None
