"""Elementwise operations: arithmetic, comparison, selection, conversion and the transcendental functions."""

from __future__ import annotations

from collections.abc import Callable

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import CompareAttrs, Opcode, ReducePrecisionAttrs
from spmd.ops.checks import bare, operand_array, stated_element_type
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS, OperandTypes
from spmd.ops.opdef import InferShape, OpCost, Verify, define, no_checks
from spmd.shape import COMPLEX_OF, COMPLEX_PARTS, ArrayShape, PrimitiveType, Shape

TypeTest = Callable[[PrimitiveType], bool]


# ---- which element types an operation takes
def is_number(t: PrimitiveType) -> bool:
    return t is not PrimitiveType.PRED


def is_inexact(t: PrimitiveType) -> bool:
    return t.is_floating or t.is_complex


def is_signed_or_inexact(t: PrimitiveType) -> bool:
    return t.is_signed_integer or is_inexact(t)


def is_real_number(t: PrimitiveType) -> bool:
    return t.is_integer or t.is_floating


def is_orderable(t: PrimitiveType) -> bool:
    return not t.is_complex


def is_bits(t: PrimitiveType) -> bool:
    return t.is_integer or t is PrimitiveType.PRED


def is_float(t: PrimitiveType) -> bool:
    return t.is_floating


def is_integer(t: PrimitiveType) -> bool:
    return t.is_integer


# ---- shape inference
def same_dims(instruction: HloInstruction) -> ArrayShape:
    """Return the shape that all operands share. Raises ShapeError if sizes or element types differ."""
    first = operand_array(instruction, 0)
    for i in range(1, instruction.num_operands):
        other = operand_array(instruction, i)
        if other.dims != first.dims or other.element_type is not first.element_type:
            raise ShapeError(
                f"operands must have one shape, found {first.without_layout()} and {other.without_layout()}"
            )
    return bare(first.element_type, first.dims)


def infer_real_part(instruction: HloInstruction) -> Shape:
    """Infer the type of an absolute value, or of a real or imaginary part."""
    shape = same_dims(instruction)
    return shape.with_element_type(COMPLEX_PARTS.get(shape.element_type, shape.element_type))


def infer_predicate(instruction: HloInstruction) -> Shape:
    return same_dims(instruction).with_element_type(PrimitiveType.PRED)


def infer_complex(instruction: HloInstruction) -> Shape:
    shape = same_dims(instruction)
    if shape.element_type not in COMPLEX_OF:
        raise ShapeError(f"complex takes f32 or f64 parts, found {shape.element_type}")
    return shape.with_element_type(COMPLEX_OF[shape.element_type])


def infer_convert(instruction: HloInstruction) -> Shape:
    shape = operand_array(instruction, 0)
    return bare(stated_element_type(instruction), shape.dims)


def infer_stochastic_convert(instruction: HloInstruction) -> Shape:
    value, random = operand_array(instruction, 0), operand_array(instruction, 1)
    if not value.element_type.is_floating:
        raise ShapeError(f"stochastic-convert takes floating-point numbers, found {value}")
    if value.dims != random.dims or not random.element_type.is_unsigned_integer:
        raise ShapeError(
            f"the random operand must be unsigned of the value's sizes, found {random}"
        )
    if value.element_type.bits != random.element_type.bits:
        raise ShapeError(f"the random operand must have the width of {value}, found {random}")
    return bare(stated_element_type(instruction), value.dims)


def infer_select(instruction: HloInstruction) -> Shape:
    predicate, on_true, on_false = (operand_array(instruction, i) for i in range(3))
    if predicate.element_type is not PrimitiveType.PRED:
        raise ShapeError(f"select needs a pred, found {predicate}")
    if on_true.dims != on_false.dims or on_true.element_type is not on_false.element_type:
        raise ShapeError(f"both values must have one shape, found {on_true} and {on_false}")
    if predicate.dims and predicate.dims != on_true.dims:
        raise ShapeError(f"the pred must be a scalar or have the values' sizes, found {predicate}")
    return bare(on_true.element_type, on_true.dims)


def infer_clamp(instruction: HloInstruction) -> Shape:
    low, value, high = (operand_array(instruction, i) for i in range(3))
    for bound in (low, high):
        if bound.element_type is not value.element_type or (
            bound.dims and bound.dims != value.dims
        ):
            raise ShapeError(
                f"a bound must be a scalar or have the value's shape {value}, found {bound}"
            )
    return bare(value.element_type, value.dims)


# ---- verification
def operand_types(test: TypeTest, what: str) -> Verify:
    """Return a check that all operands' element types pass ``test``."""

    def verify(instruction: HloInstruction) -> None:
        for i in range(instruction.num_operands):
            found = operand_array(instruction, i).element_type
            if not test(found):
                raise ShapeError(f"{instruction.opcode} takes {what}, found {found}")

    return verify


def verify_compare(instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CompareAttrs)
    if attrs.direction not in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        raise ShapeError(f"unknown comparison direction {attrs.direction}")
    element_type = operand_array(instruction, 0).element_type
    if attrs.type not in ("", *_comparison_types(element_type)):
        raise ShapeError(f"a comparison of {element_type} cannot have type={attrs.type}")
    if element_type.is_complex and attrs.direction not in ("EQ", "NE"):
        raise ShapeError("complex numbers have no order")


def _comparison_types(element_type: PrimitiveType) -> tuple[str, ...]:
    if element_type.is_floating:
        return ("FLOAT", "TOTALORDER")
    if element_type.is_complex:
        return ("FLOAT",)
    return ("SIGNED",) if element_type.is_signed_integer else ("UNSIGNED",)


def verify_reduce_precision(instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ReducePrecisionAttrs)
    if attrs.exponent_bits < 1 or attrs.mantissa_bits < 0:
        raise ShapeError("reduce-precision needs exponent_bits >= 1 and mantissa_bits >= 0")
    operand_types(is_float, "floating-point numbers")(instruction)


# ---- cost
def one_flop(instruction: HloInstruction) -> OpCost:
    """Count one operation per result element, as XLA does."""
    return OpCost(flops=float(instruction.array_shape.num_elements))


def one_transcendental(instruction: HloInstruction) -> OpCost:
    return OpCost(transcendentals=float(instruction.array_shape.num_elements))


_CHECKS: dict[OperandTypes, Verify] = {
    "any": no_checks,
    "numbers": operand_types(is_number, "numbers"),
    "inexact": operand_types(is_inexact, "floating-point or complex numbers"),
    "signed": operand_types(is_signed_or_inexact, "signed, floating-point or complex numbers"),
    "real": operand_types(is_real_number, "real numbers"),
    "floats": operand_types(is_float, "floating-point numbers"),
    "bits": operand_types(is_bits, "integers or pred"),
    "integers": operand_types(is_integer, "integers"),
    "ordered": operand_types(is_orderable, "ordered values"),
}
#: Checks of more than the operands' types.
_MORE_CHECKS: dict[Opcode, Verify] = {
    Opcode.COMPARE: verify_compare,
    Opcode.REDUCE_PRECISION: verify_reduce_precision,
}
#: Opcodes whose result does not have the common shape of the operands.
_RESULTS: dict[Opcode, InferShape] = {
    Opcode.ABS: infer_real_part,
    Opcode.CLAMP: infer_clamp,
    Opcode.COMPARE: infer_predicate,
    Opcode.COMPLEX: infer_complex,
    Opcode.CONVERT: infer_convert,
    Opcode.IMAG: infer_real_part,
    Opcode.IS_FINITE: infer_predicate,
    Opcode.REAL: infer_real_part,
    Opcode.SELECT: infer_select,
    Opcode.STOCHASTIC_CONVERT: infer_stochastic_convert,
}

for _opcode, _op in ELEMENTWISE_OPS.items():
    define(
        _opcode,
        _RESULTS.get(_opcode, same_dims),
        _op.arity,
        _MORE_CHECKS.get(_opcode, _CHECKS[_op.operand_types]),
        one_transcendental if _op.transcendental else one_flop,
        elementwise=True,
        commutative=_op.commutative,
    )
