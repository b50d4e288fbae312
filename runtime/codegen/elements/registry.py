"""Registries of element operations by opcode: bodies in LLVM IR, and functions that write them as arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from runtime.codegen.elements.builder import Bool, Code, Float, Instructions, Int, Lines
from runtime.codegen.elements.formats import BF16, F32, F64, FloatFormat
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.values import typed
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.registry import Registry
from spmd.shape import PrimitiveType

#: Function that returns the body of a signature, which computes %r from the operands %a, %b and %c, all
#: in their wide types, or None if there is none.
Body: TypeAlias = Callable[[ElementSignature], str | None]
#: Function of one or two numbers of one format.
FloatFunction: TypeAlias = Callable[..., Float]

BODIES: Registry[Opcode, Body] = Registry("element operation in LLVM IR")
FLOAT_FUNCTIONS: Registry[tuple[Opcode, FloatFormat], FloatFunction] = Registry(
    "function of floats in LLVM IR"
)

BODIES.import_at_need(
    {
        "runtime.codegen.elements.arithmetic": (
            Opcode.ADD,
            Opcode.DIVIDE,
            Opcode.MULTIPLY,
            Opcode.NEGATE,
            Opcode.SUBTRACT,
            Opcode.CEIL,
            Opcode.ROUND_NEAREST_AFZ,
            Opcode.ROUND_NEAREST_EVEN,
            Opcode.ABS,
            Opcode.FLOOR,
            Opcode.SQRT,
            Opcode.MAXIMUM,
            Opcode.MINIMUM,
            Opcode.CLAMP,
            Opcode.SIGN,
        ),
        "runtime.codegen.elements.bitwise": (
            Opcode.AND,
            Opcode.OR,
            Opcode.XOR,
            Opcode.NOT,
            Opcode.SELECT,
        ),
        "runtime.codegen.elements.comparison": (
            Opcode.COMPARE,
            Opcode.IS_FINITE,
        ),
        "runtime.codegen.elements.conversion": (
            Opcode.CONVERT,
            Opcode.BITCAST_CONVERT,
            Opcode.REDUCE_PRECISION,
        ),
        "runtime.codegen.elements.integer_arithmetic": (
            Opcode.MULHI,
            Opcode.REMAINDER,
            Opcode.SHIFT_LEFT,
            Opcode.SHIFT_RIGHT_LOGICAL,
            Opcode.SHIFT_RIGHT_ARITHMETIC,
            Opcode.POPCNT,
            Opcode.COUNT_LEADING_ZEROS,
            Opcode.POWER,
        ),
    }
)
FLOAT_FUNCTIONS.import_at_need(
    {
        "runtime.codegen.elements.error_function": (
            (Opcode.ERF, F32),
            (Opcode.ERF, F64),
        ),
        "runtime.codegen.elements.exponential": (
            (Opcode.EXPONENTIAL, F32),
            (Opcode.EXPONENTIAL, F64),
            (Opcode.EXPONENTIAL, BF16),
            (Opcode.EXPONENTIAL_MINUS_ONE, F32),
            (Opcode.EXPONENTIAL_MINUS_ONE, F64),
            (Opcode.LOGISTIC, F32),
            (Opcode.LOGISTIC, F64),
            (Opcode.LOGISTIC, BF16),
        ),
        "runtime.codegen.elements.hyperbolic": (
            (Opcode.TANH, F32),
            (Opcode.TANH, F64),
            (Opcode.TANH, BF16),
            (Opcode.SINH, F32),
            (Opcode.SINH, F64),
            (Opcode.COSH, F32),
            (Opcode.COSH, F64),
            (Opcode.ASINH, F64),
            (Opcode.ACOSH, F64),
            (Opcode.ATANH, F64),
            (Opcode.ASINH, F32),
            (Opcode.ACOSH, F32),
            (Opcode.ATANH, F32),
        ),
        "runtime.codegen.elements.inverse_trigonometric": (
            (Opcode.ASIN, F32),
            (Opcode.ASIN, F64),
            (Opcode.ACOS, F32),
            (Opcode.ACOS, F64),
            (Opcode.ATAN2, F32),
            (Opcode.ATAN2, F64),
        ),
        "runtime.codegen.elements.logarithm": (
            (Opcode.LOG, F32),
            (Opcode.LOG, F64),
            (Opcode.LOG_PLUS_ONE, F32),
            (Opcode.LOG_PLUS_ONE, F64),
        ),
        "runtime.codegen.elements.power": (
            (Opcode.RSQRT, F32),
            (Opcode.RSQRT, F64),
            (Opcode.CBRT, F64),
            (Opcode.POWER, F32),
            (Opcode.POWER, F64),
        ),
        "runtime.codegen.elements.trigonometric": (
            (Opcode.SINE, F32),
            (Opcode.SINE, F64),
            (Opcode.COSINE, F32),
            (Opcode.COSINE, F64),
            (Opcode.TAN, F32),
            (Opcode.TAN, F64),
        ),
    }
)


def float_function(signature: ElementSignature, wide: FloatFormat) -> FloatFunction | None:
    """Return the function of ``signature``, which computes in the format ``wide``, or None if there is none.

    f32 has its own functions if these are faster, and otherwise uses those of f64. bf16 is computed in f32, by shorter
    polynomials if there are any.
    """
    if not all(kind.is_floating for kind in (*signature.operands, signature.result)):
        return None
    if signature.result is PrimitiveType.BF16:
        short = FLOAT_FUNCTIONS.get((signature.opcode, BF16))
        if short is not None:
            return short
    own = FLOAT_FUNCTIONS.get((signature.opcode, wide))
    wider = FLOAT_FUNCTIONS.get((signature.opcode, F64))
    if own is not None or wider is None:
        return own
    return lambda *xs: wider(*(x.to(F64) for x in xs)).to(F32)


def float_lines(
    function: FloatFunction, arity: int, wide: FloatFormat, instructions: Instructions
) -> Lines:
    code = Code(instructions)
    result = function(*(Float(code, wide, f"%{letter}") for letter in "abc"[:arity]))
    return code.lines(result)


def body_of(signature: ElementSignature, function: Callable[..., Float | Int | Bool]) -> str:
    """Return the body that ``function`` writes for operands in their wide types."""
    code = Code()
    operands = (
        typed(code, wide_type(kind), f"%{letter}")
        for kind, letter in zip(signature.operands, "abc", strict=False)
    )
    return code.text(function(*operands))
