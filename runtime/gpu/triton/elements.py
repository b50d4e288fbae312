"""Element operations as Triton expressions.

As in the other back ends, floats narrower than f32 are computed in f32 and rounded once for each operation.
"""

from __future__ import annotations

import math

from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.attention_operations import has_tile_operation
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType

#: Element types of tiles, by their names in triton.language.
TYPES = {
    PrimitiveType.PRED: "int1",
    PrimitiveType.S8: "int8",
    PrimitiveType.S16: "int16",
    PrimitiveType.S32: "int32",
    PrimitiveType.S64: "int64",
    PrimitiveType.U8: "uint8",
    PrimitiveType.U16: "uint16",
    PrimitiveType.U32: "uint32",
    PrimitiveType.U64: "uint64",
    PrimitiveType.F16: "float16",
    PrimitiveType.BF16: "bfloat16",
    PrimitiveType.F32: "float32",
}
#: Types of pointers to these elements, as in signatures of Triton's compiler. A predicate is a byte.
POINTERS = {
    PrimitiveType.PRED: "*i8",
    PrimitiveType.S8: "*i8",
    PrimitiveType.S16: "*i16",
    PrimitiveType.S32: "*i32",
    PrimitiveType.S64: "*i64",
    PrimitiveType.U8: "*u8",
    PrimitiveType.U16: "*u16",
    PrimitiveType.U32: "*u32",
    PrimitiveType.U64: "*u64",
    PrimitiveType.F16: "*fp16",
    PrimitiveType.BF16: "*bf16",
    PrimitiveType.F32: "*fp32",
}

#: Functions that expressions call, as Triton source. ``larger`` returns nan if one argument is. ``tanh`` has a Taylor
#: polynomial near 0, where the difference of the formula would cancel.
FUNCTIONS = """\
@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - e) / (1.0 + e)
    square = x * x
    near = x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0))))
    return tl.where(square < 0.0625, near, tl.where(x < 0.0, -far, far))
"""

_COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
#: Operations on floats and integers alike.
_ON_NUMBERS = {
    Opcode.ABS: "tl.abs({0})",
    Opcode.ADD: "{0} + {1}",
    Opcode.MULTIPLY: "{0} * {1}",
    Opcode.NEGATE: "-{0}",
    Opcode.SUBTRACT: "{0} - {1}",
}
#: Functions of CUDA's libdevice by opcode, which are linked only where they are called.
_LIBDEVICE = {
    Opcode.ACOS: "acos",
    Opcode.ACOSH: "acosh",
    Opcode.ASIN: "asin",
    Opcode.ASINH: "asinh",
    Opcode.ATAN2: "atan2",
    Opcode.ATANH: "atanh",
    Opcode.CBRT: "cbrt",
    Opcode.COSH: "cosh",
    Opcode.COSINE: "cos",
    Opcode.ERF: "erf",
    Opcode.EXPONENTIAL_MINUS_ONE: "expm1",
    Opcode.LOG_PLUS_ONE: "log1p",
    Opcode.POWER: "pow",
    Opcode.REMAINDER: "fmod",
    Opcode.ROUND_NEAREST_AFZ: "round",
    Opcode.ROUND_NEAREST_EVEN: "rint",
    Opcode.SINE: "sin",
    Opcode.SINH: "sinh",
    Opcode.TAN: "tan",
}
_TWO_OPERANDS = (Opcode.ATAN2, Opcode.POWER, Opcode.REMAINDER)
EXPRESSIONS_ON_FLOATS = _ON_NUMBERS | {
    **{
        opcode: f"libdevice.{name}({'{0}, {1}' if opcode in _TWO_OPERANDS else '{0}'})"
        for opcode, name in _LIBDEVICE.items()
    },
    Opcode.CEIL: "tl.ceil({0})",
    Opcode.CLAMP: "smaller(larger({1}, {0}), {2})",
    Opcode.DIVIDE: "{0} / {1}",
    Opcode.EXPONENTIAL: "tl.exp({0})",
    Opcode.FLOOR: "tl.floor({0})",
    Opcode.LOG: "tl.log({0})",
    Opcode.LOGISTIC: "1.0 / (1.0 + tl.exp(-{0}))",
    Opcode.MAXIMUM: "larger({0}, {1})",
    Opcode.MINIMUM: "smaller({0}, {1})",
    Opcode.RSQRT: "tl.rsqrt({0})",
    Opcode.SIGN: "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
    Opcode.SQRT: "tl.sqrt({0})",
    Opcode.TANH: "tanh({0})",
}
EXPRESSIONS_ON_INTEGERS = _ON_NUMBERS | {
    Opcode.AND: "{0} & {1}",
    Opcode.CLAMP: "tl.minimum(tl.maximum({1}, {0}), {2})",
    Opcode.DIVIDE: "{0} // {1}",
    Opcode.MAXIMUM: "tl.maximum({0}, {1})",
    Opcode.MINIMUM: "tl.minimum({0}, {1})",
    Opcode.NOT: "~{0}",
    Opcode.OR: "{0} | {1}",
    Opcode.REMAINDER: "{0} % {1}",
    Opcode.XOR: "{0} ^ {1}",
}
EXPRESSIONS_ON_PREDICATES = {
    Opcode.ADD: "{0} | {1}",
    Opcode.AND: "{0} & {1}",
    Opcode.MULTIPLY: "{0} & {1}",
    Opcode.NOT: "{0} == 0",
    Opcode.OR: "{0} | {1}",
    Opcode.XOR: "{0} ^ {1}",
}


def type_name(kind: PrimitiveType) -> str:
    """Return the Triton expression of element type ``kind``. Raises NoTritonKernelError if tiles cannot have it."""
    if kind not in TYPES:
        raise NoTritonKernelError(f"no tile has elements of type {kind}")
    return f"tl.{TYPES[kind]}"


def pointer_type(kind: PrimitiveType) -> str:
    """Return the type of pointers to elements of ``kind``. Raises NoTritonKernelError if tiles cannot have them."""
    if kind not in POINTERS:
        raise NoTritonKernelError(f"no tile has elements of type {kind}")
    return POINTERS[kind]


def cast(name: str, given: PrimitiveType, wanted: PrimitiveType) -> str:
    """Return the expression that converts ``name`` from type ``given`` to ``wanted``."""
    return name if given is wanted else f"{name}.to({type_name(wanted)})"


def literal(value: object, kind: PrimitiveType) -> str:
    """Return the expression of a scalar constant of type ``kind``."""
    if kind.is_floating:
        number = float(value)  # type: ignore[arg-type]
        text = repr(number) if math.isfinite(number) else f'float("{number}")'
    else:
        text = repr(int(value))  # type: ignore[call-overload]
    return f"tl.full([], {text}, {type_name(kind)})"


def operation(x: HloInstruction, operands: list[str]) -> str:
    """Return the expression of the elementwise instruction ``x`` on ``operands``, which have its operands' types.

    The expression has the type of ``x``. Raises NoTritonKernelError if there is none.
    """
    if not has_tile_operation(x):
        raise NoTritonKernelError(f"{x.name}: no Triton expression of {x.opcode}")
    given = [operand.array_shape.element_type for operand in x.operands]
    made = x.array_shape.element_type
    names = [cast(n, kind, kind.accumulator) for n, kind in zip(operands, given, strict=True)]
    if x.opcode is Opcode.SELECT:  # moves elements as they are
        return f"tl.where({', '.join(operands)})"
    if x.opcode is Opcode.CONVERT:
        return _conversion(names[0], given[0], made)
    if x.opcode is Opcode.COMPARE:
        return _comparison(x, names)
    if x.opcode is Opcode.IS_FINITE:
        return f'tl.abs({names[0]}) < float("inf")'
    table = EXPRESSIONS_ON_INTEGERS
    if made is PrimitiveType.PRED:
        table = EXPRESSIONS_ON_PREDICATES
    elif made.is_floating:
        table = EXPRESSIONS_ON_FLOATS
    text = table[x.opcode].format(*names)
    return text if made.accumulator is made else f"({text}).to({type_name(made)})"


def _conversion(name: str, given: PrimitiveType, made: PrimitiveType) -> str:
    if made is PrimitiveType.PRED:
        return f"{name} != 0"
    wide = cast(name, given.accumulator, made.accumulator)
    return cast(wide, made.accumulator, made)


def _comparison(x: HloInstruction, names: list[str]) -> str:
    return f"{names[0]} {_COMPARISONS[x.attrs_as(CompareAttrs).direction]} {names[1]}"
