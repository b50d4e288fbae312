"""Errors of native element functions, and docs/internals/native_math.md, the page that shows them.

python -m tests.documents.native_math [--count 1048576] write the page anew, from that many arguments per function
python -m tests.documents.native_math --every-f32 [--stride 1] all 2^32 arguments (or every so many) of one-argument f32
functions

The exact values of f32 are NumPy's f64 functions, those of f64 the C library's on x86's 80-bit numbers (elsewhere, and
for erf, mpmath's); both are far more accurate than what they judge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from runtime.codegen.llvm.jit import host_fuses
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.evaluator.special import erf
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.documents.native_complex_math import complex_page
from tests.paths import ROOT

DOCUMENT = ROOT / "docs" / "internals" / "native_math.md"
P = PrimitiveType
Array = np.ndarray[Any, Any]
Wide = np.longdouble
#: x86's 80-bit numbers have 11 bits more than f64.
HAS_EXTENDED = np.finfo(Wide).nmant >= 63


def logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (x.dtype.type(1) + small)


def rsqrt(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(x)


@dataclass(frozen=True)
class Function:
    """reference: in f64 or extended precision. exact: one argument, to many digits."""

    opcode: Opcode
    reference: Callable[..., Array] | None
    exact: Callable[..., Any]
    arity: int = 1


FUNCTIONS = (
    Function(Opcode.ACOS, np.arccos, mpmath.acos),
    Function(Opcode.ACOSH, np.arccosh, mpmath.acosh),
    Function(Opcode.ASIN, np.arcsin, mpmath.asin),
    Function(Opcode.ASINH, np.arcsinh, mpmath.asinh),
    Function(Opcode.ATAN2, np.arctan2, mpmath.atan2, 2),
    Function(Opcode.ATANH, np.arctanh, mpmath.atanh),
    Function(Opcode.CBRT, np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    Function(Opcode.COSH, np.cosh, mpmath.cosh),
    Function(Opcode.COSINE, np.cos, mpmath.cos),
    Function(Opcode.ERF, None, mpmath.erf),
    Function(Opcode.EXPONENTIAL, np.exp, mpmath.exp),
    Function(Opcode.EXPONENTIAL_MINUS_ONE, np.expm1, mpmath.expm1),
    Function(Opcode.LOG, np.log, mpmath.log),
    Function(Opcode.LOG_PLUS_ONE, np.log1p, mpmath.log1p),
    Function(Opcode.LOGISTIC, logistic, lambda x: 1 / (1 + mpmath.exp(-x))),
    Function(Opcode.POWER, np.power, mpmath.power, 2),
    Function(Opcode.RSQRT, rsqrt, lambda x: 1 / mpmath.sqrt(x)),
    Function(Opcode.SINE, np.sin, mpmath.sin),
    Function(Opcode.SINH, np.sinh, mpmath.sinh),
    Function(Opcode.SQRT, np.sqrt, mpmath.sqrt),
    Function(Opcode.TAN, np.tan, mpmath.tan),
    Function(Opcode.TANH, np.tanh, mpmath.tanh),
)


# ---- arguments
def edges(kind: PrimitiveType) -> Array:
    info = np.finfo(kind.numpy)
    one_side = [0, 0.5, 1, 1.5, 2, 3, np.inf, info.max, info.tiny, info.smallest_subnormal]
    return np.array([*one_side, *(-x for x in one_side), np.nan], kind.numpy)


def stratified(kind: PrimitiveType, count: int, rng: np.random.Generator) -> Array:
    """One bit pattern out of each of ``count`` equal ranges of them: all exponents and signs alike."""
    bits = kind.bits
    step = (1 << bits) // count
    offsets = rng.integers(0, step, count, dtype=np.uint64)
    patterns = np.arange(count, dtype=np.uint64) * np.uint64(step) + offsets
    return patterns.astype(f"u{bits // 8}").view(kind.numpy)


def arguments(function: Function, kind: PrimitiveType, count: int) -> list[Array]:
    """Half stratified, a quarter spread around 1, a quarter between -1 and 1, then all edges (with each other)."""
    rng = np.random.default_rng(7)
    columns = []
    for _ in range(function.arity):
        spread = rng.standard_normal(count // 4) * np.exp(rng.uniform(-3, 3, count // 4))
        inside = rng.uniform(-1, 1, count // 4)
        mixed = np.concatenate(
            [
                stratified(kind, count // 2, rng),
                spread.astype(kind.numpy),
                inside.astype(kind.numpy),
            ]
        )
        columns.append(mixed if function.arity == 1 else rng.permutation(mixed))
    if function.opcode is Opcode.POWER:
        # A third with finite results: y log|x| between the logarithms of the least and the largest number.
        part = slice(0, count // 3)
        limit = np.log(float(np.finfo(kind.numpy).max)) * 1.05
        with np.errstate(all="ignore"):
            logs = np.log(np.abs(columns[0][part].astype(np.float64)))
            columns[1][part] = (rng.uniform(-1, 1, count // 3) * limit / logs).astype(kind.numpy)
    ends = np.meshgrid(*[edges(kind)] * function.arity)
    return [np.concatenate([x, end.ravel()]) for x, end in zip(columns, ends, strict=True)]


# ---- values
def native(opcode: Opcode, kind: PrimitiveType, operands: list[Array]) -> Array:
    out = np.empty_like(operands[0])
    bind_operation(ElementSignature(opcode, (kind,) * len(operands), kind), operands, out)()
    return out


def exact_values(function: Function, kind: PrimitiveType, operands: list[Array]) -> Array:
    """Return exact values: in f64 for types up to f32, in extended precision (or as good as f64 shows) for f64."""
    with np.errstate(all="ignore"):
        if kind is not P.F64:
            wide = [x.astype(np.float64) for x in operands]
            return erf(wide[0]) if function.reference is None else function.reference(*wide)
        if function.reference is not None and HAS_EXTENDED:
            return function.reference(*(x.astype(Wide) for x in operands))
        return one_by_one(function, operands)


def one_by_one(function: Function, operands: list[Array]) -> Array:
    """Return the values by mpmath, as the nearest Wide.

    Edges, where mpmath has other limits, are taken from the reference.
    """
    reference = function.reference or erf
    with np.errstate(all="ignore"):
        values = reference(*operands).astype(Wide)
    with mpmath.workprec(1200):
        for i, xs in enumerate(zip(*operands, strict=True)):
            if np.isfinite(xs).all() and np.isfinite(values[i]) and values[i] != 0:
                values[i] = _wide(function.exact(*(mpmath.mpf(float(x)) for x in xs)))
    return values


def _wide(x: Any) -> Any:
    """A sum of two f64, which Wide holds as well as it can."""
    high = float(x)
    return Wide(high) + Wide(float(x - mpmath.mpf(high)))


def ulps(got: Array, exact: Array, kind: PrimitiveType) -> Array:
    """Units in the last place of ``kind`` at the exact value; infinite where nan or a sign is another one."""
    import ml_dtypes

    info = ml_dtypes.finfo(kind.numpy)
    beyond = np.ldexp(exact.dtype.type(1), info.maxexp)
    with np.errstate(all="ignore"):
        value, exact_value = got.astype(exact.dtype), np.clip(exact, -beyond, beyond)
        exponent = np.maximum(np.frexp(np.abs(exact_value))[1] - 1, info.minexp)
        exponent = np.minimum(exponent, info.maxexp - 1)
        unit = np.ldexp(exact.dtype.type(1), exponent - info.nmant)
        far = np.abs(np.clip(value, -beyond, beyond) - exact_value) / unit
        nan = np.isnan(exact)
        other_sign = np.signbit(value) != np.signbit(exact)
        wrong = np.where(nan, ~np.isnan(value), np.isnan(value) | other_sign)
    return np.where(wrong, np.inf, np.where(nan, 0, far)).astype(np.float64)


@dataclass(frozen=True)
class Worst:
    """The largest error found, in ulps, and the arguments."""

    ulps: float
    at: tuple[float, ...]


def worst(function: Function, kind: PrimitiveType, count: int) -> Worst:
    operands = arguments(function, kind, count)
    found = ulps(
        native(function.opcode, kind, operands), exact_values(function, kind, operands), kind
    )
    i = int(np.argmax(found))
    return Worst(float(found[i]), tuple(float(x[i]) for x in operands))


def every_f32(function: Function, stride: int) -> Worst:
    """All bit patterns, 2^22 at a time."""
    chunk, result = 1 << 22, Worst(-1.0, ())
    for start in range(0, 1 << 32, chunk * stride):
        x = np.arange(start, start + chunk * stride, stride, dtype=np.uint64)
        operand = x.astype(np.uint32).view(np.float32)
        exact = exact_values(function, P.F32, [operand])
        found = ulps(native(function.opcode, P.F32, [operand]), exact, P.F32)
        i = int(np.argmax(found))
        result = max(result, Worst(float(found[i]), (float(operand[i]),)), key=lambda w: w.ulps)
    return result


# ---- the page
HEADER = """# Native math

Built by `python -m tests.documents.native_math` on a processor with{without} a fused multiply-add: the largest error found in the
native code of each function, in units in the last place (ulp) of the exact value, and where. 0.5 is correct rounding.
{count} arguments each, half of them spread over all bit patterns, denormal numbers among them, and all edge values (in
pairs where there are two), for which nan, infinities and signs must be right. `--every-f32` tries all numbers.

f32 `acosh`, `asinh`, `atanh`, `cbrt`, `power` and `tan` are computed in f64; bf16, f16 and 8-bit formats in f32, and
rounded once. Where the processor permutes 32 numbers in registers, f32 `exponential` takes powers of 2^(1/32) from a
table, and `tanh` is one of 26 polynomials; elsewhere that is computed by `exponential`. bf16 `exponential`, `logistic`
and `tanh` have shorter polynomials: of all bf16 numbers one each of the first two is rounded to the wrong side, by
0.50002 ulp at most. Constants come from `benchmarks/native/minimax.py` and `minimax_intervals.py`; `benchmarks/native/native_math.py`
prints the speeds.

| function | f32: ulp | at | f64: ulp | at |
|---|---|---|---|---|
"""


def page(count: int) -> Iterator[str]:
    yield HEADER.format(count=f"{count:,}", without="" if host_fuses() else "out")
    for function in FUNCTIONS:
        cells = [function.opcode.value]
        for kind in (P.F32, P.F64):
            slow = kind is P.F64 and (function.reference is None or not HAS_EXTENDED)
            found = worst(function, kind, 1 << 12 if slow else count)
            cells += [f"{found.ulps:.2f}", ", ".join(f"{x:.9g}" for x in found.at)]
        yield f"| {' | '.join(cells)} |\n"
    yield from complex_page(min(count, 1 << 13))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1 << 20, help="arguments per function")
    parser.add_argument("--every-f32", action="store_true")
    parser.add_argument("--stride", type=int, default=1, help="with --every-f32: one of so many")
    options = parser.parse_args()
    if options.every_f32:
        for function in FUNCTIONS:
            if function.arity == 1:
                found = every_f32(function, options.stride)
                print(
                    f"{function.opcode.value:24s} {found.ulps:.3f} at {found.at[0]!r}", flush=True
                )
        return 0
    DOCUMENT.write_text("".join(page(options.count)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
