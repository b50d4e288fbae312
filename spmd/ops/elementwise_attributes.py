"""Elementwise opcodes, by their attributes: registries take them from here."""

from __future__ import annotations

from typing import Final

from spmd.hlo.opcode import Opcode

#: Functions with several implementations: ResultAccuracyAttrs, or none.
WITH_ACCURACY: Final = (
    Opcode.ACOS,
    Opcode.ACOSH,
    Opcode.ASIN,
    Opcode.ASINH,
    Opcode.ATANH,
    Opcode.CBRT,
    Opcode.COSH,
    Opcode.COSINE,
    Opcode.ERF,
    Opcode.EXPONENTIAL,
    Opcode.EXPONENTIAL_MINUS_ONE,
    Opcode.LOG,
    Opcode.LOG_PLUS_ONE,
    Opcode.LOGISTIC,
    Opcode.RSQRT,
    Opcode.SINE,
    Opcode.SINH,
    Opcode.SQRT,
    Opcode.TAN,
    Opcode.TANH,
)

#: Opcodes without attributes of their own.
WITHOUT_ATTRIBUTES: Final = (
    Opcode.ABS,
    Opcode.ADD,
    Opcode.AND,
    Opcode.ATAN2,
    Opcode.BITCAST_CONVERT,
    Opcode.CEIL,
    Opcode.CLAMP,
    Opcode.COMPLEX,
    Opcode.CONVERT,
    Opcode.COPY,
    Opcode.COUNT_LEADING_ZEROS,
    Opcode.DIVIDE,
    Opcode.FLOOR,
    Opcode.IMAG,
    Opcode.IS_FINITE,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.MULHI,
    Opcode.MULTIPLY,
    Opcode.NEGATE,
    Opcode.NOT,
    Opcode.OR,
    Opcode.POPCNT,
    Opcode.POWER,
    Opcode.REAL,
    Opcode.REMAINDER,
    Opcode.ROUND_NEAREST_AFZ,
    Opcode.ROUND_NEAREST_EVEN,
    Opcode.SELECT,
    Opcode.SHIFT_LEFT,
    Opcode.SHIFT_RIGHT_ARITHMETIC,
    Opcode.SHIFT_RIGHT_LOGICAL,
    Opcode.SIGN,
    Opcode.STOCHASTIC_CONVERT,
    Opcode.SUBTRACT,
    Opcode.XOR,
)

#: Elementwise opcodes of every attribute: one element of the result comes from one of each operand.
ELEMENTWISE: Final = (
    *WITH_ACCURACY,
    *(x for x in WITHOUT_ATTRIBUTES if x not in (Opcode.BITCAST_CONVERT, Opcode.COPY)),
    Opcode.COMPARE,
    Opcode.REDUCE_PRECISION,
)
