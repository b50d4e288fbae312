"""Seconds of element operations: their cost in additions or evaluations of exp, for which a machine has rates."""

from __future__ import annotations

from spmd.hlo.opcode import Opcode
from spmd.machine.description import MachineDescription, Rates
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.shape import PrimitiveType

#: Operations that take as long as a byte of memory traffic, and as a transcendental function, for passes without a
#: machine description. The values are 3 and 15 in cpu-avx512, 10 and 8 in dgx-h100.
OPERATIONS_PER_BYTE, OPERATIONS_PER_FUNCTION = 4.0, 10.0

#: Time of an operation on a single integer as a multiple of the time per element in a vector: on an EPYC with AVX-512,
#: 262,144 indices that are compared, added and selected one by one take 0.3 ns each longer.
SINGLE_INTEGER = 4.0

#: Operations without arithmetic: they select elements or numbers.
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
    op = ELEMENTWISE_OPS.get(opcode)
    if op is None:
        return 1.0 / rates.simple
    if kind.is_integer and op.cost.integers is not None:
        return op.cost.integers / rates.simple
    return op.cost.additions / rates.simple + op.cost.exponentials / rates.transcendental
