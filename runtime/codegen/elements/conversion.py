"""convert and bitcast-convert."""

from __future__ import annotations

from runtime.codegen.elements.registry import BODIES, ElementSignature
from runtime.codegen.elements.storage import stored_type, wide_type
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType


@BODIES.register(Opcode.CONVERT)
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


@BODIES.register(Opcode.BITCAST_CONVERT)
def bitcast_conversion(signature: ElementSignature) -> str | None:
    """Between types of one width that are computed with as they lie in memory."""
    (source,), target = signature.operands, signature.result
    if PrimitiveType.PRED in (source, target) or source.byte_size != target.byte_size:
        return None
    if any(stored_type(kind) != wide_type(kind) for kind in (source, target)):
        return None
    return f"%r = bitcast {wide_type(source)} %a to {wide_type(target)}"
