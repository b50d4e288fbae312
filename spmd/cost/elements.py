"""Cost of element operations in additions or exp evaluations, for which a machine description has rates.

The values are rounded from the instruction counts of vector code. They differ by tens of percent between processors,
which only changes decisions that are close anyway.
"""

from __future__ import annotations

from spmd.hlo.opcode import Opcode
from spmd.machine.description import MachineDescription, Rates
from spmd.shape import PrimitiveType

#: Operations that take as long as a byte of memory, and as a transcendental function, for passes that know no machine:
#: 3 and 15 in cpu-avx512, 10 and 8 in dgx-h100.
OPERATIONS_PER_BYTE, OPERATIONS_PER_FUNCTION = 4.0, 10.0

#: In additions; an operation that is neither here nor in _EXPONENTIALS counts as one.
_ADDITIONS: dict[Opcode, float] = {
    Opcode.CBRT: 60.0,
    Opcode.CLAMP: 2.0,
    Opcode.DIVIDE: 10.0,
    Opcode.RSQRT: 20.0,
    Opcode.SIGN: 2.0,
    Opcode.SQRT: 12.0,
}
#: Division of integers is not vectorized.
_INTEGER_ADDITIONS: dict[Opcode, float] = {
    Opcode.DIVIDE: 60.0,
    Opcode.REMAINDER: 60.0,
    Opcode.POWER: 90.0,
}

#: In evaluations of exp.
_EXPONENTIALS: dict[Opcode, float] = {
    Opcode.ACOS: 2.0,
    Opcode.ACOSH: 2.5,
    Opcode.ASIN: 2.0,
    Opcode.ASINH: 2.5,
    Opcode.ATAN2: 2.5,
    Opcode.ATANH: 2.0,
    Opcode.COSH: 1.5,
    Opcode.COSINE: 2.0,
    Opcode.ERF: 2.0,
    Opcode.EXPONENTIAL: 1.0,
    Opcode.EXPONENTIAL_MINUS_ONE: 1.5,
    Opcode.LOG: 1.3,
    Opcode.LOG_PLUS_ONE: 1.5,
    Opcode.LOGISTIC: 1.5,
    Opcode.POWER: 2.5,
    Opcode.REMAINDER: 1.0,
    Opcode.SINE: 2.0,
    Opcode.SINH: 1.5,
    Opcode.TAN: 2.5,
    Opcode.TANH: 1.3,
}
#: Operations that compute nothing: they select elements or numbers.
_FREE = frozenset(
    {
        Opcode.BITCAST,
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.PARAMETER,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)


def element_seconds(
    opcode: Opcode, operand: PrimitiveType, result: PrimitiveType, machine: MachineDescription
) -> float:
    """Return the seconds of one element of type ``result``. A comparison costs what its operands' type does."""
    computed_in = operand if opcode is Opcode.COMPARE else result
    return _operation_seconds(opcode, result, machine.rates_of(computed_in))


def _operation_seconds(opcode: Opcode, kind: PrimitiveType, rates: Rates) -> float:
    if opcode in _FREE:
        return 0.0
    measured = dict(rates.functions).get(opcode)
    if measured is not None and not kind.is_integer:
        return 1.0 / measured
    if kind.is_integer and opcode in _INTEGER_ADDITIONS:
        return _INTEGER_ADDITIONS[opcode] / rates.simple
    if opcode in _EXPONENTIALS:
        return _EXPONENTIALS[opcode] / rates.transcendental
    return _ADDITIONS.get(opcode, 1.0) / rates.simple
