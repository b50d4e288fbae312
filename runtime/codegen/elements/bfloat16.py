"""Conversions between f32 and bf16, which is the upper half of an f32: rounded to nearest, ties to even.

Rounding adds 2^15 - 1 to the bits of the f32, and one more if the upper half is odd; the carry rounds up. A processor
that multiplies pairs of 16-bit integers and adds both products to a 32-bit integer (AVX-512 VNNI) does both additions
in one instruction, with the pairs (2^15 - 1, upper half's lowest bit) and (1, 1). LLVM has that instruction for vectors
only, so loops call it through the vector variants of a function.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Code, Float, Int, Lines
from runtime.codegen.elements.formats import F32
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.variants import LANES, PURE, variant, with_variants
from runtime.program.scalar_program import ElementSignature, Provenance
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

_LOWER = 16
_BELOW_HALF = (1 << (_LOWER - 1)) - 1
#: Bit of an f32 that makes a nan quiet.
QUIET = 0x40_0000
#: Name of the function that returns the bits of an f32 plus the amount that rounds their upper half.
CARRIED = "bf16_carried"


@cache
def widening() -> str:
    """Return lines that compute %y, a float, from %x, the i16 that stores a bf16."""
    code = Code()
    bits = Int(code, "i16", "%x").resized("i32") << _LOWER
    return code.text(bits.as_float(F32), "%y")


@cache
def narrowing(provenance: Provenance, instructions: Instructions) -> Lines:
    """Return lines that compute %y, the i16 that stores a bf16, from %x, a float.

    ``provenance`` tells which values occur, some of which need no rounding or no test for nan.
    """
    code = Code(instructions)
    x = Float(code, F32, "%x")
    if instructions.rounds and provenance is not Provenance.CHOSEN:
        rounded = code.append(f"call bfloat @llvm.nvvm.f2bf16.rn(float {x.name})")
        return code.lines(Int(code, "i16", code.append(f"bitcast bfloat {rounded} to i16")), "%y")
    bits = x.bits()
    if provenance is not Provenance.CHOSEN:
        carried = _carried(bits)
        bits = (
            carried
            if provenance is Provenance.COMPUTED
            else x.is_nan().select(bits | QUIET, carried)
        )
    return code.lines((bits >> _LOWER).resized("i16"), "%y")


#: Arithmetic that a processor with ``short`` does in bf16. A result of f32 that is rounded to bf16 is the same, since
#: f32 has more than twice the digits (S. A. Figueroa, "When is double rounding innocuous?", 1995), except for denormal
#: products.
_SHORT = {Opcode.ADD: "fadd", Opcode.MULTIPLY: "fmul", Opcode.SUBTRACT: "fsub"}


def short_arithmetic(signature: ElementSignature, instructions: Instructions) -> list[str] | None:
    """Return lines that compute %stored from %a and %b, the i16 that store bf16, in bf16; None for other operations."""
    operation = _SHORT.get(signature.opcode)
    if not instructions.short or operation is None or signature.result is not PrimitiveType.BF16:
        return None
    return [
        "  %short.a = bitcast i16 %a to bfloat",
        "  %short.b = bitcast i16 %b to bfloat",
        f"  %short = {operation} bfloat %short.a, %short.b",
        "  %stored = bitcast bfloat %short to i16",
    ]


def _carried(bits: Int) -> Int:
    """Return the bits of an f32 plus the amount that rounds their upper half."""
    code = bits.code
    if not code.instructions.pairs:
        return bits + ((bits >> _LOWER) & 1) + _BELOW_HALF
    code.globals.append(_carried_by_pairs())
    return Int(code, bits.type, code.append(f"call i32 @{CARRIED}(i32 {bits.name})"))


@cache
def _carried_by_pairs() -> str:
    code = Code()
    one = code.text(_carried(Int(code, "i32", "%x")))
    return f"""{"".join(map(carried_of_several, LANES))}
define weak i32 @{CARRIED}(i32 %x) {PURE} {with_variants(CARRIED)} {{
  {one}
  ret i32 %r
}}"""


def carried_of_several(lanes: int, linkage: str = "external") -> str:
    """Return the variant of the function ``CARRIED`` for vectors of ``lanes`` numbers, on processors with ``pairs``."""
    t = f"<{lanes} x i32>"
    instruction = f"@llvm.x86.avx512.vpdpwssd.{32 * lanes}"
    odd, below_half, ones = (
        f"<{', '.join([f'i32 {x}'] * lanes)}>" for x in (1 << _LOWER, _BELOW_HALF, 1 << _LOWER | 1)
    )
    return f"""
define {linkage} {t} @{variant(CARRIED, lanes)}({t} %x) alwaysinline {PURE} {{
  %odd = and {t} %x, {odd}
  %both = or {t} %odd, {below_half}
  %r = call {t} {instruction}({t} %x, {t} %both, {t} {ones})
  ret {t} %r
}}"""
