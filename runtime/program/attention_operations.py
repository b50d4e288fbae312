"""Element operations that kernels of attention fusions compute on blocks of scores."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType

_ON_NUMBERS = {Opcode.ABS, Opcode.ADD, Opcode.MULTIPLY, Opcode.NEGATE, Opcode.SUBTRACT}
_ORDERED = {Opcode.CLAMP, Opcode.DIVIDE, Opcode.MAXIMUM, Opcode.MINIMUM, Opcode.REMAINDER}
_BITWISE = {Opcode.AND, Opcode.NOT, Opcode.OR, Opcode.XOR}
#: Operations whose results are floats, besides conversions and selections.
ON_FLOATS = frozenset(
    {
        *_ON_NUMBERS,
        *_ORDERED,
        *(Opcode.ACOS, Opcode.ACOSH, Opcode.ASIN, Opcode.ASINH, Opcode.ATAN2, Opcode.ATANH),
        *(Opcode.CBRT, Opcode.CEIL, Opcode.COSH, Opcode.COSINE, Opcode.ERF, Opcode.EXPONENTIAL),
        *(Opcode.EXPONENTIAL_MINUS_ONE, Opcode.FLOOR, Opcode.LOG, Opcode.LOG_PLUS_ONE),
        *(Opcode.LOGISTIC, Opcode.POWER, Opcode.ROUND_NEAREST_AFZ, Opcode.ROUND_NEAREST_EVEN),
        *(
            Opcode.RSQRT,
            Opcode.SIGN,
            Opcode.SINE,
            Opcode.SINH,
            Opcode.SQRT,
            Opcode.TAN,
            Opcode.TANH,
        ),
    }
)
#: Operations whose results are integers, besides conversions and selections.
ON_INTEGERS = frozenset({*_ON_NUMBERS, *_ORDERED, *_BITWISE})
#: Operations on predicates, besides comparisons, conversions and selections.
ON_PREDICATES = frozenset({*_BITWISE, Opcode.ADD, Opcode.MULTIPLY})


def has_tile_operation(x: HloInstruction) -> bool:
    """Return whether kernels of attention fusions compute the elementwise operation ``x``.

    They do not convert floats to integers, which would have to saturate, and do not compare in total order.
    """
    made = x.array_shape.element_type
    given = [operand.array_shape.element_type for operand in x.operands]
    if x.opcode is Opcode.SELECT:
        return not given[0].is_integer and x.operand(0).dims == x.dims
    if x.opcode is Opcode.CONVERT:
        return made is PrimitiveType.PRED or made.is_floating or not given[0].is_floating
    if x.opcode is Opcode.COMPARE:
        return x.attrs_as(CompareAttrs).type != "TOTALORDER"
    if x.opcode is Opcode.IS_FINITE:
        return True
    if made is PrimitiveType.PRED:
        return x.opcode in ON_PREDICATES
    return x.opcode in (ON_FLOATS if made.is_floating else ON_INTEGERS)
