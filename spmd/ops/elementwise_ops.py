"""The table of elementwise opcodes: all that is known of them apart from what they compute.

A new opcode is a row here; its value is a function in ``spmd/evaluator/elementwise.py``, its native code one in its
family's file in ``runtime/codegen/elements``. Shape inference, readers, writers, sharding rules, costs, roundings and
the registries of native code take their lists from this table.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from spmd.hlo.opcode import Opcode

#: Element types that an operation takes; spmd/ops/elementwise.py has a check for each.
OperandTypes = Literal[
    "any", "numbers", "real", "signed", "inexact", "floats", "integers", "bits", "ordered"
]


class ElementCost(NamedTuple):
    """The cost of one element.

    additions, exponentials: how many additions, or evaluations of exp, take as long; one of the two is zero.
    integers: the same in additions for integers, where it differs: their division is not vectorized.

    The values are rounded from the instruction counts of vector code. They differ by tens of percent between
    processors, which only changes decisions that are close anyway.
    """

    additions: float = 0.0
    exponentials: float = 0.0
    integers: float | None = None


_ADDITION = ElementCost(1.0)


class ElementwiseOp(NamedTuple):
    """A row of the table: facts about one opcode.

    families: files of ``runtime/codegen/elements`` with its native code. arity: its number of operands.
    commutative: operands may be exchanged. rounds: a floating-point result is rounded, not exact.
    transcendental: XLA's cost analysis counts it as such. accuracy: it takes ``result_accuracy``.
    """

    families: tuple[str, ...]
    cost: ElementCost
    operand_types: OperandTypes = "any"
    arity: int = 1
    commutative: bool = False
    rounds: bool = False
    transcendental: bool = False
    accuracy: bool = False


def _function(
    family: str, cost: ElementCost, operand_types: OperandTypes = "inexact"
) -> ElementwiseOp:
    """Return the row of a function that has several implementations."""
    return ElementwiseOp(
        (family,), cost, operand_types, rounds=True, transcendental=True, accuracy=True
    )


def _exponentials(
    family: str, number: float, operand_types: OperandTypes = "inexact"
) -> ElementwiseOp:
    return _function(family, ElementCost(exponentials=number), operand_types)


def _simple(
    family: str, operand_types: OperandTypes, arity: int = 1, *, commutative: bool = False
) -> ElementwiseOp:
    """Return the row of an exact operation that costs as much as an addition."""
    return ElementwiseOp((family,), _ADDITION, operand_types, arity, commutative)


#: Family of complex and real, which construct and split complex numbers: that of their arithmetic.
_COMPLEX = "complex_arithmetic"

ELEMENTWISE_OPS: Final[dict[Opcode, ElementwiseOp]] = {
    Opcode.ACOS: _exponentials("inverse_trigonometric", 2.0),
    Opcode.ACOSH: _exponentials("hyperbolic", 2.5),
    Opcode.ASIN: _exponentials("inverse_trigonometric", 2.0),
    Opcode.ASINH: _exponentials("hyperbolic", 2.5),
    Opcode.ATANH: _exponentials("hyperbolic", 2.0),
    Opcode.CBRT: _function("power", ElementCost(60.0), "floats"),
    Opcode.COSH: _exponentials("hyperbolic", 1.5),
    Opcode.COSINE: _exponentials("trigonometric", 2.0),
    Opcode.ERF: _exponentials("error_function", 2.0, "floats"),
    Opcode.EXPONENTIAL: _exponentials("exponential", 1.0),
    Opcode.EXPONENTIAL_MINUS_ONE: _exponentials("exponential", 1.5),
    Opcode.LOG: _exponentials("logarithm", 1.3),
    Opcode.LOG_PLUS_ONE: _exponentials("logarithm", 1.5),
    Opcode.LOGISTIC: _exponentials("exponential", 1.5),
    Opcode.RSQRT: _function("power", ElementCost(20.0)),
    Opcode.SINE: _exponentials("trigonometric", 2.0),
    Opcode.SINH: _exponentials("hyperbolic", 1.5),
    Opcode.SQRT: _function("arithmetic", ElementCost(12.0)),
    Opcode.TAN: _exponentials("trigonometric", 2.5),
    Opcode.TANH: _exponentials("hyperbolic", 1.3),
    # ---- arithmetic; add and multiply on pred mean or and and
    Opcode.ADD: ElementwiseOp(("arithmetic",), _ADDITION, "any", 2, commutative=True, rounds=True),
    Opcode.ATAN2: ElementwiseOp(
        *(("inverse_trigonometric",), ElementCost(exponentials=2.5), "inexact", 2),
        rounds=True,
        transcendental=True,
    ),
    Opcode.DIVIDE: ElementwiseOp(
        ("arithmetic",), ElementCost(10.0, integers=60.0), "numbers", 2, rounds=True
    ),
    Opcode.MULHI: _simple("integer_arithmetic", "integers", 2, commutative=True),
    Opcode.MULTIPLY: ElementwiseOp(
        ("arithmetic",), _ADDITION, "any", 2, commutative=True, rounds=True
    ),
    Opcode.POWER: ElementwiseOp(
        *(
            ("power", "integer_arithmetic"),
            ElementCost(exponentials=2.5, integers=90.0),
            "numbers",
            2,
        ),
        rounds=True,
        transcendental=True,
    ),
    Opcode.REMAINDER: ElementwiseOp(
        ("integer_arithmetic",), ElementCost(exponentials=1.0, integers=60.0), "real", 2
    ),
    Opcode.SUBTRACT: ElementwiseOp(("arithmetic",), _ADDITION, "numbers", 2, rounds=True),
    Opcode.ABS: _simple("arithmetic", "signed"),
    Opcode.CEIL: _simple("arithmetic", "floats"),
    Opcode.CLAMP: ElementwiseOp(("arithmetic",), ElementCost(2.0), "ordered", 3),
    Opcode.FLOOR: _simple("arithmetic", "floats"),
    Opcode.MAXIMUM: _simple("arithmetic", "ordered", 2, commutative=True),
    Opcode.MINIMUM: _simple("arithmetic", "ordered", 2, commutative=True),
    Opcode.NEGATE: _simple("arithmetic", "numbers"),
    Opcode.ROUND_NEAREST_AFZ: _simple("arithmetic", "floats"),
    Opcode.ROUND_NEAREST_EVEN: _simple("arithmetic", "floats"),
    Opcode.SIGN: ElementwiseOp(("arithmetic",), ElementCost(2.0), "signed"),
    # ---- bits, conditions, selection
    Opcode.AND: _simple("bitwise", "bits", 2, commutative=True),
    Opcode.COMPARE: _simple("comparison", "any", 2),
    Opcode.COUNT_LEADING_ZEROS: _simple("integer_arithmetic", "integers"),
    Opcode.IS_FINITE: _simple("comparison", "floats"),
    Opcode.NOT: _simple("bitwise", "bits"),
    Opcode.OR: _simple("bitwise", "bits", 2, commutative=True),
    Opcode.POPCNT: _simple("integer_arithmetic", "integers"),
    Opcode.SELECT: _simple("bitwise", "any", 3),
    Opcode.SHIFT_LEFT: _simple("integer_arithmetic", "integers", 2),
    Opcode.SHIFT_RIGHT_ARITHMETIC: _simple("integer_arithmetic", "integers", 2),
    Opcode.SHIFT_RIGHT_LOGICAL: _simple("integer_arithmetic", "integers", 2),
    Opcode.XOR: _simple("bitwise", "bits", 2, commutative=True),
    # ---- conversion
    Opcode.COMPLEX: _simple(_COMPLEX, "any", 2),
    Opcode.CONVERT: _simple("conversion", "any"),
    Opcode.IMAG: _simple(_COMPLEX, "inexact"),
    Opcode.REAL: _simple(_COMPLEX, "inexact"),
    Opcode.REDUCE_PRECISION: _simple("conversion", "floats"),
    Opcode.STOCHASTIC_CONVERT: ElementwiseOp((), _ADDITION, "any", 2),
}

#: All elementwise opcodes, whatever their attributes: one element of the result depends on one element of each operand.
ELEMENTWISE: Final = tuple(ELEMENTWISE_OPS)

#: Functions with several implementations: ResultAccuracyAttrs, or none.
WITH_ACCURACY: Final = tuple(x for x, op in ELEMENTWISE_OPS.items() if op.accuracy)

#: Opcodes without attributes of their own. Two of them change only the type or the layout.
WITHOUT_ATTRIBUTES: Final = (
    *(
        x
        for x, op in ELEMENTWISE_OPS.items()
        if not op.accuracy and x not in (Opcode.COMPARE, Opcode.REDUCE_PRECISION)
    ),
    Opcode.BITCAST_CONVERT,
    Opcode.COPY,
)


def of_family(*families: str) -> dict[str, tuple[Opcode, ...]]:
    """Return the opcodes that have native code in each of the families."""
    return {
        family: tuple(x for x, op in ELEMENTWISE_OPS.items() if family in op.families)
        for family in families
    }
