"""Operations that take every dimension as it is."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from tests.differential.factors.table import PASS, WHOLE, Factors, arrays, factor, rows

# ---- every dimension passes
ELEMENTWISE = (
    Opcode.ABS, Opcode.ACOS, Opcode.ACOSH, Opcode.ADD, Opcode.AND, Opcode.ASIN, Opcode.ASINH, Opcode.ATAN2,
    Opcode.ATANH, Opcode.CBRT, Opcode.CEIL, Opcode.CLAMP, Opcode.COMPARE, Opcode.COMPLEX, Opcode.CONVERT,
    Opcode.COPY, Opcode.COSH, Opcode.COSINE, Opcode.COUNT_LEADING_ZEROS, Opcode.DIVIDE, Opcode.DOMAIN, Opcode.ERF,
    Opcode.EXPONENTIAL, Opcode.EXPONENTIAL_MINUS_ONE, Opcode.FLOOR, Opcode.IMAG, Opcode.IS_FINITE, Opcode.LOG,
    Opcode.LOG_PLUS_ONE, Opcode.LOGISTIC, Opcode.MAP, Opcode.MAXIMUM, Opcode.MINIMUM, Opcode.MULTIPLY,
    Opcode.NEGATE, Opcode.NOT, Opcode.OR, Opcode.POPCNT, Opcode.POWER, Opcode.REAL, Opcode.REDUCE_PRECISION,
    Opcode.REMAINDER, Opcode.ROUND_NEAREST_AFZ, Opcode.ROUND_NEAREST_EVEN, Opcode.RSQRT, Opcode.SELECT,
    Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_ARITHMETIC, Opcode.SHIFT_RIGHT_LOGICAL, Opcode.SIGN, Opcode.SINE,
    Opcode.SINH, Opcode.SQRT, Opcode.STOCHASTIC_CONVERT, Opcode.SUBTRACT, Opcode.TAN, Opcode.TANH, Opcode.XOR,
)  # fmt: skip


@rows(
    (PASS,),
    *ELEMENTWISE,
    Opcode.CONSTANT,
    Opcode.IOTA,
    Opcode.ALL_REDUCE,
    Opcode.COLLECTIVE_PERMUTE,
    Opcode.COLLECTIVE_BROADCAST,
    "custom-call Sharding",
    "custom-call xla.sdy.FuncResultSharding",
    "custom-call MoveToHost",
    "custom-call MoveToDevice",
)
def _same_dims(instruction: HloInstruction) -> Factors:
    """Operands without dimensions (a clamp's bounds, a select's pred) have no part."""
    result = instruction.array_shape
    for d in range(result.rank):
        sharing = {i: d for i, o in enumerate(instruction.operands) if o.array_shape.rank}
        yield factor(PASS, sharing, {0: d})


@rows((PASS,), Opcode.TUPLE, Opcode.WHILE, Opcode.OPT_BARRIER)
def _leaf_by_leaf(instruction: HloInstruction) -> Factors:
    for leaf, array in enumerate(arrays(instruction.shape)):
        for d in range(array.rank):
            yield factor(PASS, {leaf: d}, {leaf: d})


@rows((PASS,), Opcode.CONDITIONAL, Opcode.PARAMETER)
def _results(instruction: HloInstruction) -> Factors:
    """Results alone: which operand becomes which result is up to the branches, and to the caller."""
    for leaf, array in enumerate(arrays(instruction.shape)):
        for d in range(array.rank):
            yield factor(PASS, {}, {leaf: d})


@rows((PASS,), Opcode.GET_TUPLE_ELEMENT)
def _element(instruction: HloInstruction) -> Factors:
    for d in range(instruction.array_shape.rank):
        yield factor(PASS, {}, {0: d})


@rows((PASS, WHOLE), Opcode.BITCAST_CONVERT)
def _bitcast_convert(instruction: HloInstruction) -> Factors:
    """The last dimension of the one that has more: the parts of one element."""
    before, after = instruction.operand(0).array_shape, instruction.array_shape
    for d in range(min(before.rank, after.rank)):
        yield factor(PASS, {0: d}, {0: d})
    if before.rank > after.rank:
        yield factor(WHOLE, {0: after.rank}, {})
    if after.rank > before.rank:
        yield factor(WHOLE, {}, {0: before.rank})
