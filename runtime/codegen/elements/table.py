"""Tables of 32 f32 numbers, which AVX-512 holds in two registers and indexes by one instruction.

LLVM has that instruction for vectors only, so loops call it through the vector variants of a function of one index.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Float, Int
from runtime.codegen.elements.formats import F32
from runtime.codegen.elements.variants import LANES, PURE, variant, with_variants

SIZE = 32
#: Number of f32 numbers in a register.
_REGISTER = 16
_VECTOR = f"<{_REGISTER} x float>"
_PERMUTED = "@llvm.x86.avx512.vpermi2var.ps.512"


def picked(name: str, numbers: tuple[float, ...], index: Int) -> Float:
    """Return numbers[index modulo 32] from the table ``name``, which must have the same numbers in all of a module.

    The processor must have ``permutes``.
    """
    code = index.code
    if (text := _functions(name, numbers)) not in code.globals:
        code.globals.append(text)
    return Float(code, F32, code.append(f"call float @{name}(i32 {index.name})"))


@cache
def _functions(name: str, numbers: tuple[float, ...]) -> str:
    """Return the table ``name``, the function of one index, and its vector variants."""
    assert len(numbers) == SIZE
    listed = ", ".join(f"float {F32.literal(number)}" for number in numbers)
    several = "".join(_of_several(name, lanes) for lanes in LANES)
    return f"""@{name}.numbers = internal constant [{SIZE} x float] [{listed}], align 64
define weak float @{name}(i32 %i) {PURE} {with_variants(name)} {{
  %place = and i32 %i, {SIZE - 1}
  %p = getelementptr [{SIZE} x float], ptr @{name}.numbers, i32 0, i32 %place
  %r = load float, ptr %p
  ret float %r
}}{several}"""


def _of_several(name: str, lanes: int) -> str:
    """Return the variant for ``lanes`` indices, which always reads a full register."""
    spread = ", ".join(f"i32 {i if i < lanes else 'poison'}" for i in range(_REGISTER))
    first = ", ".join(f"i32 {i}" for i in range(lanes))
    return f"""
define <{lanes} x float> @{variant(name, lanes)}(<{lanes} x i32> %some) alwaysinline {PURE} {{
  %all = shufflevector <{lanes} x i32> %some, <{lanes} x i32> poison, <{_REGISTER} x i32> <{spread}>
  %low = load {_VECTOR}, ptr @{name}.numbers
  %p = getelementptr {_VECTOR}, ptr @{name}.numbers, i32 1
  %high = load {_VECTOR}, ptr %p
  %picked = call {_VECTOR} {_PERMUTED}({_VECTOR} %low, <{_REGISTER} x i32> %all, {_VECTOR} %high)
  %r = shufflevector {_VECTOR} %picked, {_VECTOR} poison, <{lanes} x i32> <{first}>
  ret <{lanes} x float> %r
}}"""
