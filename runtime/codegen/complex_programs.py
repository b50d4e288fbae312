"""Operations on complex numbers as scalar programs on their real and imaginary parts, which lie in memory in turn.

Parameters are the operands' parts in order, one for a real operand; so are results. Only what needs no more than
arithmetic is here: functions such as exp have edges of their own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeAlias

from runtime.codegen.element_operations import ElementSignature, has_operation
from runtime.codegen.scalar_program import ScalarConstant, ScalarOp, ScalarProgram, ScalarStep
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.ops.attrs import CompareAttrs
from spmd.registry import Registry
from spmd.shape import PrimitiveType

P = PrimitiveType
#: Registers of an operand: two of a complex one.
Parts: TypeAlias = tuple[int, ...]
Rule: TypeAlias = "Callable[[_Writer, ElementSignature, tuple[Parts, ...]], Parts]"

_RULES: Registry[Opcode, Rule] = Registry("complex operation")
_PART = {P.C64: P.F32, P.C128: P.F64}


def part_of(kind: PrimitiveType) -> PrimitiveType:
    """The type of a complex type's parts; a real type itself."""
    return _PART.get(kind, kind)


def complex_program(signature: ElementSignature) -> ScalarProgram | None:
    """None where it is no operation on complex numbers, or none that is known."""
    if not any(kind.is_complex for kind in (*signature.operands, signature.result)):
        return None
    rule = _RULES.get(signature.opcode)
    if rule is None:
        return None
    writer = _Writer()
    operands = tuple(writer.operand(kind) for kind in signature.operands)
    results = rule(writer, signature, operands)
    if not all(has_operation(x.signature) for x in writer.steps if isinstance(x, ScalarOp)):
        return None
    return ScalarProgram(tuple(writer.parameters), tuple(writer.steps), results)


class _Writer:
    """A program as it grows: all parameters come before the first step."""

    def __init__(self) -> None:
        self.parameters: list[PrimitiveType] = []
        self.steps: list[ScalarStep] = []
        self.kinds: list[PrimitiveType] = []

    def operand(self, kind: PrimitiveType) -> Parts:
        count = 2 if kind.is_complex else 1
        first = len(self.parameters)
        self.parameters += [part_of(kind)] * count
        self.kinds += [part_of(kind)] * count
        return tuple(range(first, first + count))

    def op(
        self,
        opcode: Opcode,
        *operands: int,
        result: PrimitiveType | None = None,
        attrs: Attrs = NO_ATTRS,
    ) -> int:
        """Of the type of the last operand, where no other is said."""
        kinds = tuple(self.kinds[r] for r in operands)
        kind = result or kinds[-1]
        self.steps.append(ScalarOp(ElementSignature(opcode, kinds, kind, attrs), operands))
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def constant(self, kind: PrimitiveType, value: float) -> int:
        packed = struct.pack("<f" if kind is P.F32 else "<d", value)
        self.steps.append(ScalarConstant(kind, int.from_bytes(packed, "little")))
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def compare(self, direction: str, a: int, b: int) -> int:
        return self.op(Opcode.COMPARE, a, b, result=P.PRED, attrs=CompareAttrs(direction))

    def converted(self, x: int, kind: PrimitiveType) -> int:
        return x if self.kinds[x] is kind else self.op(Opcode.CONVERT, x, result=kind)


@_RULES.register(Opcode.ADD, Opcode.SUBTRACT, Opcode.NEGATE)
def part_by_part(
    writer: _Writer, signature: ElementSignature, operands: tuple[Parts, ...]
) -> Parts:
    return tuple(writer.op(signature.opcode, *parts) for parts in zip(*operands, strict=True))


@_RULES.register(Opcode.MULTIPLY)
def multiply(writer: _Writer, _: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    (a, b), (c, d) = operands

    def product(x: int, y: int) -> int:
        return writer.op(Opcode.MULTIPLY, x, y)

    return (
        writer.op(Opcode.SUBTRACT, product(a, c), product(b, d)),
        writer.op(Opcode.ADD, product(a, d), product(b, c)),
    )


@_RULES.register(Opcode.COMPLEX)
def complex_of_parts(_: _Writer, __: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    (real,), (imaginary,) = operands
    return real, imaginary


@_RULES.register(Opcode.SELECT)
def select(writer: _Writer, _: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    (chosen,), on_true, on_false = operands
    return tuple(
        writer.op(Opcode.SELECT, chosen, x, y) for x, y in zip(on_true, on_false, strict=True)
    )


@_RULES.register(Opcode.COMPARE)
def compare(writer: _Writer, signature: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    """Equal are those of which both parts are."""
    attrs = signature.attrs
    assert isinstance(attrs, CompareAttrs)
    (a, b), (c, d) = operands
    real, imaginary = writer.compare(attrs.direction, a, c), writer.compare(attrs.direction, b, d)
    both = Opcode.AND if attrs.direction == "EQ" else Opcode.OR
    return (writer.op(both, real, imaginary),)


@_RULES.register(Opcode.CONVERT)
def convert(writer: _Writer, signature: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    """Of a real number the imaginary part is 0, and a real result is the real part."""
    kind = part_of(signature.result)
    if not signature.result.is_complex:
        return (writer.converted(operands[0][0], kind),)
    parts = tuple(writer.converted(x, kind) for x in operands[0])
    return parts if len(parts) == 2 else (*parts, writer.constant(kind, 0.0))


@_RULES.register(Opcode.ABS)
def absolute(writer: _Writer, signature: ElementSignature, operands: tuple[Parts, ...]) -> Parts:
    """sqrt(x^2 + y^2), f32's in f64; f64's as large sqrt(1 + (small / large)^2). Infinite if a part is."""
    kind = signature.result
    x, y = (writer.op(Opcode.ABS, part) for part in operands[0])
    infinity = writer.constant(kind, math.inf)
    either = writer.op(
        Opcode.OR, writer.compare("EQ", x, infinity), writer.compare("EQ", y, infinity)
    )
    if kind is P.F32:
        wide = [writer.converted(part, P.F64) for part in (x, y)]
        squares = [writer.op(Opcode.MULTIPLY, part, part) for part in wide]
        root = writer.op(Opcode.SQRT, writer.op(Opcode.ADD, *squares))
        length = writer.converted(root, P.F32)
    else:
        large, small = writer.op(Opcode.MAXIMUM, x, y), writer.op(Opcode.MINIMUM, x, y)
        ratio = writer.op(Opcode.DIVIDE, small, large)
        above = writer.op(
            Opcode.ADD, writer.constant(kind, 1.0), writer.op(Opcode.MULTIPLY, ratio, ratio)
        )
        scaled = writer.op(Opcode.MULTIPLY, large, writer.op(Opcode.SQRT, above))
        none = writer.compare("EQ", large, writer.constant(kind, 0.0))
        length = writer.op(Opcode.SELECT, none, large, scaled)
    return (writer.op(Opcode.SELECT, either, infinity, length),)
