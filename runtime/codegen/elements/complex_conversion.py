"""Conversions to and from complex numbers, which convert the parts."""

from __future__ import annotations

import re
from collections.abc import Callable

from runtime.codegen.elements.builder import Code, Float, Int, Lines
from runtime.codegen.elements.complex_numbers import PARTS, Complex
from runtime.codegen.elements.storage import wide_type
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import COMPLEX_PARTS


def complex_conversion(
    signature: ElementSignature, lines: Callable[[ElementSignature], Lines | None]
) -> Lines | None:
    """Return the lines of a conversion. A real operand gets imaginary part 0; a real result is the real part.

    ``lines`` returns the lines of a conversion of real numbers, or None if there is none.
    """
    (source,), target = signature.operands, signature.result
    if source.is_complex and target.is_complex:
        code = Code()
        number = Complex.of(Int(code, wide_type(source), "%a"))
        return Lines(code.text(number.to(PARTS[target]).element()))
    part = COMPLEX_PARTS[source if source.is_complex else target]
    inner = ElementSignature(
        Opcode.CONVERT,
        (part,) if source.is_complex else (source,),
        target if source.is_complex else part,
    )
    real = lines(inner)
    if real is None:
        return None
    body = re.sub(r"%t(\d+)", r"%real\1", real.body)
    code = Code()
    if source.is_complex:
        re_part = Complex.of(Int(code, wide_type(source), "%a")).re
        taken = code.text(re_part, "%part")
        return Lines("\n  ".join([taken, re.sub(r"%a\b", "%part", body)]), real.globals)
    fmt = PARTS[target]
    number = Complex(Float(code, fmt, "%part"), Float(code, fmt, fmt.literal(0.0)))
    made = re.sub(r"%r\b", "%part", body)
    return Lines("\n  ".join([made, code.text(number.element())]), real.globals)
