"""Element operations as LLVM IR: a function ``@operation`` of elements as they lie in memory, by opcode and types.

Where C has no answer (division by zero, shifts too far, floats beyond an integer's range), it is XLA's. Floats narrower
than f32 are computed in f32 and rounded once. Results have the reference evaluator's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from runtime.codegen.llvm_reduction import combination, element_of
from spmd.device import ReductionKind
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.ops.attrs import CompareAttrs
from spmd.registry import Registry
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class ElementSignature:
    """An elementwise opcode with its operands' types and the result's."""

    opcode: Opcode
    operands: tuple[PrimitiveType, ...]
    result: PrimitiveType
    attrs: Attrs = NO_ATTRS


#: Lines that make %r, in the result's wide type, of %a, %b, %c, the operands in theirs; None where there are none.
Body: TypeAlias = Callable[[ElementSignature], str | None]

_BODIES: Registry[Opcode, Body] = Registry("element operation in LLVM IR")


def stored_type(kind: PrimitiveType) -> str:
    """How an element lies in memory."""
    return element_of(kind.numpy).stored


def wide_type(kind: PrimitiveType) -> str:
    """How one is computed with."""
    return element_of(kind.numpy).wide


def has_operation(signature: ElementSignature) -> bool:
    return _body(signature) is not None


def operation_ir(signature: ElementSignature, name: str = "operation") -> list[str]:
    """Function ``name``, after the functions and intrinsics that it calls, whose names tell what they are."""
    body = _body(signature)
    assert body is not None, "has_operation says so"
    kinds = signature.operands
    functions = []
    for kind in dict.fromkeys((*kinds, signature.result)):
        element = element_of(kind.numpy)
        functions += [
            _function(f"widen_{kind}", element.stored, element.wide, element.widen),
            _function(f"narrow_{kind}", element.wide, element.stored, element.narrow),
        ]
    parameters = ", ".join(f"{stored_type(kind)} %x{i}" for i, kind in enumerate(kinds))
    widened = [
        f"  %{letter} = call {wide_type(kind)} @widen_{kind}({stored_type(kind)} %x{i})"
        for i, (kind, letter) in enumerate(zip(kinds, "abc", strict=False))
    ]
    stored, wide = stored_type(signature.result), wide_type(signature.result)
    lines = [
        f"define internal {stored} @{name}({parameters}) alwaysinline {{",
        *widened,
        f"  {body}",
        f"  %stored = call {stored} @narrow_{signature.result}({wide} %r)",
        f"  ret {stored} %stored\n}}\n",
    ]
    return [*_declarations(body), *functions, "\n".join(lines)]


def _function(name: str, source: str, target: str, body: str) -> str:
    return (
        f"define internal {target} @{name}({source} %x) alwaysinline {{\n"
        f"  {body}\n  ret {target} {'%y' if body else '%x'}\n}}"
    )


def _declarations(body: str) -> list[str]:
    """Of the intrinsics that ``body`` calls, each by a line ``%name = call type @llvm.name(type %a, ..)``."""
    found = []
    for line in body.splitlines():
        if "@llvm." in line:
            result, call = line.split(" call ")[1].split(" ", 1)
            name, arguments = call.rstrip(") ").split("(")
            types = ", ".join(argument.split()[0] for argument in arguments.split(", "))
            found.append(f"declare {result} {name}({types})")
    return list(dict.fromkeys(found))


def _body(signature: ElementSignature) -> str | None:
    make = _BODIES.get(signature.opcode)
    known = all(map(_is_known, (*signature.operands, signature.result)))
    return None if make is None or not known else make(signature)


def _is_known(kind: PrimitiveType) -> bool:
    """Whole-byte integers and floats of 16 bits or more."""
    if kind is PrimitiveType.PRED:
        return True
    return not kind.is_complex and kind.bits >= (16 if kind.is_floating else 8)


# ---- floats
_FLOAT_INSTRUCTIONS = {
    Opcode.ADD: "fadd {t} %a, %b",
    Opcode.DIVIDE: "fdiv {t} %a, %b",
    Opcode.MULTIPLY: "fmul {t} %a, %b",
    Opcode.NEGATE: "fneg {t} %a",
    Opcode.SUBTRACT: "fsub {t} %a, %b",
}
_INTEGER_INSTRUCTIONS = {
    Opcode.ADD: "add {t} %a, %b",
    Opcode.MULTIPLY: "mul {t} %a, %b",
    Opcode.NEGATE: "sub {t} 0, %a",
    Opcode.SUBTRACT: "sub {t} %a, %b",
}
_FLOAT_INTRINSICS = {
    Opcode.ABS: "fabs",
    Opcode.CEIL: "ceil",
    Opcode.FLOOR: "floor",
    Opcode.ROUND_NEAREST_AFZ: "round",
    Opcode.ROUND_NEAREST_EVEN: "rint",
    Opcode.SQRT: "sqrt",
}


@_BODIES.register(*_FLOAT_INSTRUCTIONS)
def arithmetic(signature: ElementSignature) -> str | None:
    kind, t = signature.result, wide_type(signature.result)
    if kind.is_floating:
        return f"%r = {_FLOAT_INSTRUCTIONS[signature.opcode].format(t=t)}"
    if not kind.is_integer:
        return None
    if signature.opcode is Opcode.DIVIDE:
        return _integer_divide(kind, t)
    return f"%r = {_INTEGER_INSTRUCTIONS[signature.opcode].format(t=t)}"


@_BODIES.register(*(set(_FLOAT_INTRINSICS)))
def rounding(signature: ElementSignature) -> str | None:
    if not signature.result.is_floating:
        return None
    t = wide_type(signature.result)
    suffix = {"float": "f32", "double": "f64"}[t]
    return f"%r = call {t} @llvm.{_FLOAT_INTRINSICS[signature.opcode]}.{suffix}({t} %a)"


@_BODIES.register(Opcode.MAXIMUM, Opcode.MINIMUM)
def extreme(signature: ElementSignature) -> str | None:
    kind = ReductionKind.MAX if signature.opcode is Opcode.MAXIMUM else ReductionKind.MIN
    return combination(signature.result.numpy, kind, wide_type(signature.result))


@_BODIES.register(Opcode.SIGN)
def sign(signature: ElementSignature) -> str | None:
    """nan and zeros of either sign stay as they are."""
    if not signature.result.is_floating:
        return None
    t = wide_type(signature.result)
    suffix = {"float": "f32", "double": "f64"}[t]
    return f"""%moves = fcmp one {t} %a, 0.0
  %one = call {t} @llvm.copysign.{suffix}({t} 1.0, {t} %a)
  %r = select i1 %moves, {t} %one, {t} %a"""


@_BODIES.register(Opcode.COMPARE)
def comparison(signature: ElementSignature) -> str | None:
    attrs, kind = signature.attrs, signature.operands[0]
    assert isinstance(attrs, CompareAttrs)
    direction, t = attrs.direction.lower(), wide_type(kind)
    if kind.is_floating and attrs.type == "TOTALORDER":
        return _total_order(direction, t)
    if kind.is_floating:
        condition = "fcmp une" if direction == "ne" else f"fcmp o{direction}"
    elif direction in ("eq", "ne"):
        condition = f"icmp {direction}"
    else:
        condition = f"icmp {'s' if kind.is_signed_integer else 'u'}{direction}"
    return f"%c = {condition} {t} %a, %b\n  %r = zext i1 %c to i8"


def _total_order(direction: str, t: str) -> str:
    """-nan < -inf < ... < -0 < +0 < ... < inf < nan: as integers, negative ones' other bits turned over."""
    bits = {"float": 32, "double": 64}[t]
    i = f"i{bits}"
    lines = []
    for x in "ab":
        lines += [
            f"%{x}_bits = bitcast {t} %{x} to {i}",
            f"%{x}_sign = ashr {i} %{x}_bits, {bits - 1}",
            f"%{x}_mask = lshr {i} %{x}_sign, 1",
            f"%{x}_key = xor {i} %{x}_bits, %{x}_mask",
        ]
    signed = direction if direction in ("eq", "ne") else f"s{direction}"
    lines += [f"%c = icmp {signed} {i} %a_key, %b_key", "%r = zext i1 %c to i8"]
    return "\n  ".join(lines)


@_BODIES.register(Opcode.IS_FINITE)
def is_finite(signature: ElementSignature) -> str | None:
    t = wide_type(signature.operands[0])
    return f"""%none = fsub {t} %a, %a
  %c = fcmp ord {t} %none, %none
  %r = zext i1 %c to i8"""


# ---- integers
def _integer_divide(kind: PrimitiveType, t: str) -> str:
    """x / 0 has all bits set; lowest / -1 is lowest."""
    if not kind.is_signed_integer:
        return f"""%zero = icmp eq {t} %b, 0
  %safe = select i1 %zero, {t} 1, {t} %b
  %quotient = udiv {t} %a, %safe
  %r = select i1 %zero, {t} -1, {t} %quotient"""
    return f"""%zero = icmp eq {t} %b, 0
  %back = icmp eq {t} %b, -1
  %special = or i1 %zero, %back
  %safe = select i1 %special, {t} 1, {t} %b
  %quotient = sdiv {t} %a, %safe
  %negated = sub {t} 0, %a
  %other = select i1 %zero, {t} -1, {t} %negated
  %r = select i1 %special, {t} %other, {t} %quotient"""


@_BODIES.register(Opcode.REMAINDER)
def remainder(signature: ElementSignature) -> str | None:
    """x % 0 is x; x % -1 is 0. NumPy's fmod serves floats."""
    kind, t = signature.result, wide_type(signature.result)
    if not kind.is_integer:
        return None
    if not kind.is_signed_integer:
        return f"""%zero = icmp eq {t} %b, 0
  %safe = select i1 %zero, {t} 1, {t} %b
  %rest = urem {t} %a, %safe
  %r = select i1 %zero, {t} %a, {t} %rest"""
    return f"""%zero = icmp eq {t} %b, 0
  %back = icmp eq {t} %b, -1
  %special = or i1 %zero, %back
  %safe = select i1 %special, {t} 1, {t} %b
  %rest = srem {t} %a, %safe
  %r = select i1 %zero, {t} %a, {t} %rest"""


@_BODIES.register(Opcode.SHIFT_LEFT, Opcode.SHIFT_RIGHT_LOGICAL)
def shift(signature: ElementSignature) -> str | None:
    """0 where the distance is negative or at least the number of bits."""
    t = wide_type(signature.result)
    instruction = "shl" if signature.opcode is Opcode.SHIFT_LEFT else "lshr"
    bits = signature.result.bits
    return f"""%inside = icmp ult {t} %b, {bits}
  %distance = and {t} %b, {bits - 1}
  %shifted = {instruction} {t} %a, %distance
  %r = select i1 %inside, {t} %shifted, {t} 0"""


@_BODIES.register(Opcode.SHIFT_RIGHT_ARITHMETIC)
def arithmetic_shift(signature: ElementSignature) -> str | None:
    """All sign where the distance is out of range."""
    t, bits = wide_type(signature.result), signature.result.bits
    return f"""%inside = icmp ult {t} %b, {bits}
  %distance = select i1 %inside, {t} %b, {t} {bits - 1}
  %r = ashr {t} %a, %distance"""


@_BODIES.register(Opcode.POPCNT)
def population_count(signature: ElementSignature) -> str | None:
    t = wide_type(signature.result)
    return f"%r = call {t} @llvm.ctpop.{t}({t} %a)"


@_BODIES.register(Opcode.COUNT_LEADING_ZEROS)
def count_leading_zeros(signature: ElementSignature) -> str | None:
    t = wide_type(signature.result)
    return f"%r = call {t} @llvm.ctlz.{t}({t} %a, i1 false)"


# ---- bits and choices
_BITWISE = {Opcode.AND: "and", Opcode.OR: "or", Opcode.XOR: "xor"}


@_BODIES.register(*_BITWISE)
def bitwise(signature: ElementSignature) -> str | None:
    if signature.result.is_floating:
        return None
    return f"%r = {_BITWISE[signature.opcode]} {wide_type(signature.result)} %a, %b"


@_BODIES.register(Opcode.NOT)
def complement(signature: ElementSignature) -> str | None:
    ones = 1 if signature.result is PrimitiveType.PRED else -1
    return f"%r = xor {wide_type(signature.result)} %a, {ones}"


@_BODIES.register(Opcode.SELECT)
def selection(signature: ElementSignature) -> str | None:
    t = wide_type(signature.result)
    return f"%chosen = icmp ne i8 %a, 0\n  %r = select i1 %chosen, {t} %b, {t} %c"


# ---- conversions
@_BODIES.register(Opcode.CONVERT)
def conversion(signature: ElementSignature) -> str | None:
    """Floats to integers round to zero and saturate, nan gives 0; other values to pred are whether they are not 0."""
    (source,), target = signature.operands, signature.result
    s, t = wide_type(source), wide_type(target)
    if target is PrimitiveType.PRED:
        if source.is_floating:
            return f"%c = fcmp une {s} %a, 0.0\n  %r = zext i1 %c to i8"
        return f"%c = icmp ne {s} %a, 0\n  %r = zext i1 %c to i8"
    if source.is_floating and target.is_integer:
        letter = "s" if target.is_signed_integer else "u"
        suffix = {"float": "f32", "double": "f64"}[s]
        return f"%r = call {t} @llvm.fpto{letter}i.sat.{t}.{suffix}({s} %a)"
    if source.is_floating and target.is_floating:
        return _float_to_float(s, t)
    letter = "s" if source.is_signed_integer else "u"
    if target.is_floating:
        return f"%r = {letter}itofp {s} %a to {t}"
    return _integer_to_integer(s, t, letter)


def _integer_to_integer(s: str, t: str, letter: str) -> str:
    if s == t:
        return f"%r = select i1 true, {t} %a, {t} %a"
    if int(t[1:]) < int(s[1:]):
        return f"%r = trunc {s} %a to {t}"
    return f"%r = {letter}ext {s} %a to {t}".replace("uext", "zext")


def _float_to_float(s: str, t: str) -> str:
    if s == t:
        return f"%r = select i1 true, {t} %a, {t} %a"
    return f"%r = {'fpext' if t == 'double' else 'fptrunc'} {s} %a to {t}"
