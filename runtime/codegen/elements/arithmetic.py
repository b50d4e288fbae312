"""Arithmetic and rounding of floats, and the same arithmetic of integers, one instruction each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from runtime.codegen.elements.builder import Float, Int
from runtime.codegen.elements.integer_arithmetic import (
    integer_abs,
    integer_divide,
    integer_sign,
)
from runtime.codegen.elements.registry import BODIES, body_of
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.combine import combination
from runtime.program.scalar_program import ElementSignature
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

_OPERATORS: dict[Opcode, Callable[..., Any]] = {
    Opcode.ADD: operator.add,
    Opcode.DIVIDE: operator.truediv,
    Opcode.MULTIPLY: operator.mul,
    Opcode.NEGATE: operator.neg,
    Opcode.SUBTRACT: operator.sub,
}
_PRED_OPERATORS = {Opcode.ADD: operator.or_, Opcode.MULTIPLY: operator.and_}
_FLOAT_INTRINSICS = {
    Opcode.ABS: "fabs",
    Opcode.CEIL: "ceil",
    Opcode.FLOOR: "floor",
    Opcode.ROUND_NEAREST_AFZ: "round",
    Opcode.ROUND_NEAREST_EVEN: "rint",
    Opcode.SQRT: "sqrt",
}


@BODIES.register(*_OPERATORS)
def arithmetic(signature: ElementSignature) -> str | None:
    kind, opcode = signature.result, signature.opcode
    if kind is PrimitiveType.PRED:
        function = _PRED_OPERATORS.get(opcode)
        return None if function is None else body_of(signature, function)
    if kind.is_integer and opcode is Opcode.DIVIDE:
        return body_of(signature, partial(integer_divide, signed=kind.is_signed_integer))
    if not kind.is_integer and not kind.is_floating:
        return None
    return body_of(signature, _OPERATORS[opcode])


@BODIES.register(*(set(_FLOAT_INTRINSICS)))
def rounding(signature: ElementSignature) -> str | None:
    kind = signature.result
    if signature.opcode is Opcode.ABS and kind.is_integer:
        return body_of(signature, partial(integer_abs, signed=kind.is_signed_integer))
    if not kind.is_floating:
        return None
    return body_of(signature, lambda x: x.intrinsic(_FLOAT_INTRINSICS[signature.opcode]))


@BODIES.register(Opcode.MAXIMUM, Opcode.MINIMUM)
def extreme(signature: ElementSignature) -> str | None:
    kind = ReductionKind.MAX if signature.opcode is Opcode.MAXIMUM else ReductionKind.MIN
    return combination(signature.result.numpy, kind, wide_type(signature.result))


@BODIES.register(Opcode.CLAMP)
def clamp(signature: ElementSignature) -> str | None:
    """Compute min(high, max(value, low)). The result is nan if any of the three is."""
    if signature.result.is_floating:
        return body_of(signature, _clamped_float)
    letter = "s" if signature.result.is_signed_integer else "u"

    def clamped(low: Int, x: Int, high: Int) -> Int:
        raised = x.compared(f"{letter}gt", low).select(x, low)
        return high.compared(f"{letter}lt", raised).select(high, raised)

    return body_of(signature, clamped)


def _clamped_float(low: Float, x: Float, high: Float) -> Float:
    raised = (x.is_nan() | (x > low)).choose(x, low)
    return (high.is_nan() | (high < raised)).choose(high, raised)


@BODIES.register(Opcode.SIGN)
def sign(signature: ElementSignature) -> str | None:
    """Compute the sign, 1 or -1. A nan and zeros of either sign are returned unchanged."""
    kind = signature.result
    if kind.is_integer:
        return body_of(signature, partial(integer_sign, signed=kind.is_signed_integer))
    if not kind.is_floating:
        return None
    return body_of(
        signature, lambda x: x.compared("one", 0.0).choose(x.constant(1.0).with_sign_of(x), x)
    )
