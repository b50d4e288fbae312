"""Functions that combine elements of every type, also complex ones, in reductions, with their neutral elements."""

from __future__ import annotations

from runtime.codegen.elements.builder import Code, Int
from runtime.codegen.elements.complex_numbers import PARTS, Complex
from runtime.codegen.elements.instructions import PLAIN, Instructions
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.combine import (
    combination,
    combiner_ir,
    combining_ir,
    conversion_ir,
    neutral,
)
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

#: Neutral elements of complex reductions.
_NEUTRAL = {ReductionKind.SUM: (-0.0, -0.0), ReductionKind.PRODUCT: (1.0, 0.0)}


def element_combining_ir(
    kind: PrimitiveType,
    reduction: ReductionKind,
    suffix: str,
    instructions: Instructions = PLAIN,
) -> tuple[str, ...]:
    """Return the functions @widen, @narrow and @combine, with ``suffix`` appended to their names.

    The first two convert between the stored type and the accumulator's type, in which @combine combines.
    """
    if not kind.is_complex:
        return combining_ir(kind.numpy, reduction, suffix, instructions)
    t = wide_type(kind)
    code = Code()
    a, b = (Complex.of(Int(code, t, name)) for name in ("%a", "%b"))
    total = a + b if reduction is ReductionKind.SUM else a * b
    same = [conversion_ir(f"{name}{suffix}", t, t) for name in ("widen", "narrow")]
    return (*same, combiner_ir(f"combine{suffix}", t, code.text(total.element())))


def neutral_element(kind: PrimitiveType, reduction: ReductionKind) -> str:
    """Return an instruction that makes the neutral element in the accumulator's type."""
    if not kind.is_complex:
        return neutral(kind, reduction)
    fmt, t = PARTS[kind], wide_type(kind)
    low, high = map(fmt.bits_of, _NEUTRAL[reduction])
    return f"bitcast {t} {low | high << fmt.bits} to {t}"


def folding_ir(kind: PrimitiveType, reduction: ReductionKind, lanes: int, name: str) -> str:
    """Return the function ``name``, which reduces a vector of ``lanes`` accumulators by combining its halves
    repeatedly.

    ``lanes`` is a power of two, at least 2.
    """
    t = wide_type(kind)
    lines = [f"define internal {t} @{name}(<{lanes} x {t}> %v{lanes}) alwaysinline {{"]
    width = lanes // 2
    functions = []
    while width > 1:
        vector, pair = f"<{width} x {t}>", f"<{2 * width} x {t}>"
        for side, first in (("low", 0), ("high", width)):
            mask = ", ".join(f"i32 {first + i}" for i in range(width))
            lines.append(
                f"  %{side}{width} = shufflevector {pair} %v{2 * width}, {pair} poison, "
                f"<{width} x i32> <{mask}>"
            )
        lines.append(
            f"  %v{width} = call {vector} @{name}_{width}({vector} %low{width}, {vector} %high{width})"
        )
        body = combination(kind.numpy, reduction, t, width)
        functions.append(combiner_ir(f"{name}_{width}", vector, body))
        width //= 2
    body = combination(kind.numpy, reduction, t)
    lines += [
        f"  %a = extractelement <2 x {t}> %v2, i32 0",
        f"  %b = extractelement <2 x {t}> %v2, i32 1",
        f"  {body}",
        f"  ret {t} %r\n}}",
    ]
    return "\n".join([*functions, *lines])
