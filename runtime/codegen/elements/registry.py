"""Registries of element operations by opcode: bodies in LLVM IR, and functions that write them as arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

from runtime.codegen.elements.builder import Bool, Code, Float, Int, Lines
from runtime.codegen.elements.formats import BF16, F32, F64, FloatFormat
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.values import typed
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.ops.elementwise_ops import of_family
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

#: Files of this folder with bodies, and with functions of floats, named as the families of opcodes.
_WITH_BODIES = ("arithmetic", "bitwise", "comparison", "conversion", "integer_arithmetic")
_WITH_FLOAT_FUNCTIONS = (
    "error_function",
    "exponential",
    "hyperbolic",
    "inverse_trigonometric",
    "logarithm",
    "power",
    "trigonometric",
)
for _family, _opcodes in of_family(*_WITH_BODIES).items():
    BODIES.import_at_need({f"{__package__}.{_family}": _opcodes})
BODIES.import_at_need({f"{__package__}.conversion": (Opcode.BITCAST_CONVERT,)})
for _family, _opcodes in of_family(*_WITH_FLOAT_FUNCTIONS).items():
    FLOAT_FUNCTIONS.import_at_need(
        {f"{__package__}.{_family}": product(_opcodes, (F32, F64, BF16))}
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
