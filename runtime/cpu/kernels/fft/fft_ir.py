"""Native code of Fourier transforms of a batch of lines: one line per vector lane, so that lanes are independent.

For each element of a line the buffer has a vector of real parts, then a vector of imaginary parts. A transform of n
points has a pass for each radix in a factorization of n (decimation in time: J. W. Cooley, J. W. Tukey, "An algorithm
for the machine calculation of complex Fourier series", 1965), in place, after the elements were loaded in
digit-reversed order. A pass of radix r combines r transforms of m points to one of r m points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import F32, F64, FloatFormat, VectorFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.values import Pointer, splat
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_fft_pass"
#: Radices for which there are passes.
RADICES = (8, 5, 4, 3, 2)
#: Bytes of the real parts, and of the imaginary parts, of one element of a batch.
VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class FftPassVariant:
    """Variant of a pass on numbers whose parts have the format ``part_format``.

    The ``first`` pass combines transforms of one point, without twiddle factors.
    """

    part_format: FloatFormat
    radix: int
    first: bool


@record
class PassRecord(Record):
    """Record of ``blocks`` consecutive transforms of radix * ``points`` points in the buffer.

    ``twiddles`` holds for each k < points the factors exp(-2 pi i k q / (radix * points)) of q = 1, .., radix - 1.
    """

    buffer: Address
    blocks: Word
    points: Word
    twiddles: Address


@cache
def pass_code(variant: FftPassVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a PassRecord."""
    return host_jit().compile(_pass_ir(variant), (FUNCTION,), passes=Passes.TIDY)


def lanes_of(fmt: FloatFormat) -> int:
    """Return the number of lines in a batch, which is the number of lanes of a vector of ``fmt``."""
    return VECTOR_BYTES * 8 // fmt.bits


def vectors_of(fmt: FloatFormat) -> VectorFormat:
    """Return the format of the vectors of a batch whose parts have the format ``fmt``."""
    return VectorFormat.of(fmt, lanes_of(fmt))


# ---- complex numbers in a buffer
def load_complex(pointer: Pointer, fmt: FloatFormat) -> Complex:
    """Load an element of a batch, a complex number per lane."""
    vectors, imaginary = vectors_of(fmt), pointer.at(VECTOR_BYTES)
    re, im = (part.load(vectors, align=VECTOR_BYTES) for part in (pointer, imaginary))
    return Complex(re, im)


def store_complex(x: Complex, pointer: Pointer) -> None:
    """Store ``x``, an element of a batch."""
    pointer.store(x.re, align=VECTOR_BYTES)
    pointer.at(VECTOR_BYTES).store(x.im, align=VECTOR_BYTES)


def in_all_lanes(pointer: Pointer, fmt: FloatFormat) -> Complex:
    """Return the complex number at ``pointer``, broadcast to all lanes."""
    vectors, size = vectors_of(fmt), fmt.bits // 8
    re, im = (
        Float(pointer.code, vectors, splat(pointer.at(part * size).load(fmt), vectors.lanes).name)
        for part in range(2)
    )
    return Complex(re, im)


def product(x: Complex, y: Complex) -> Complex:
    """Return x * y, with fused multiply-adds if these are fast."""
    below = -(x.im * y.im)
    across = x.im * y.re
    return Complex(x.re.times_plus(y.re, below), x.re.times_plus(y.im, across))


def plus_scaled(x: Complex, y: Complex, factor: float) -> Complex:
    """Return x + factor * y."""
    return Complex(y.re.times_plus(factor, x.re), y.im.times_plus(factor, x.im))


def times_minus_i(x: Complex) -> Complex:
    """Return -i * x."""
    return Complex(x.im, -x.re)


# ---- the function
def _pass_ir(variant: FftPassVariant) -> str:
    """Return the IR of ``pass_code``."""
    f = FunctionWriter(FUNCTION, PassRecord)
    rec, radix, element_bytes = f.record, variant.radix, 2 * VECTOR_BYTES
    buffer, blocks = rec.buffer, rec.blocks
    if variant.first:
        with f.cursor_loop(blocks, {0: Cursor(buffer, radix * element_bytes)}) as (_, at):
            _butterfly(variant, [at[0].at(q * element_bytes) for q in range(radix)], None)
        return f.end()
    points, twiddles = rec.points, rec.twiddles
    ways = [points * (q * element_bytes) for q in range(radix + 1)]
    factors = (radix - 1) * 2 * variant.part_format.bits // 8
    with f.cursor_loop(blocks, {0: Cursor(buffer, ways[radix])}) as (_, at):
        cursors = {0: Cursor(at[0], element_bytes), 1: Cursor(twiddles, factors)}
        with f.cursor_loop(points, cursors) as (_, here):
            _butterfly(variant, [here[0].at(way) for way in ways[:radix]], here[1])
    return f.end()


def _butterfly(variant: FftPassVariant, pointers: list[Pointer], twiddles: Pointer | None) -> None:
    """Write the transform of the elements at ``pointers``, after multiplying all but the first by ``twiddles``."""
    size = 2 * variant.part_format.bits // 8
    xs = [load_complex(pointer, variant.part_format) for pointer in pointers]
    if twiddles is not None:
        for q in range(1, len(xs)):
            xs[q] = product(xs[q], in_all_lanes(twiddles.at((q - 1) * size), variant.part_format))
    for x, pointer in zip(transform(xs), pointers, strict=True):
        store_complex(x, pointer)


def transform(xs: Sequence[Complex]) -> list[Complex]:
    """Return the transform of ``xs``, whose number is a radix, by additions and a few multiplications."""
    return {2: _two, 3: _three, 4: _four, 5: _five, 8: _eight}[len(xs)](xs)


def _two(xs: Sequence[Complex]) -> list[Complex]:
    return [xs[0] + xs[1], xs[0] - xs[1]]


def _four(xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _two((xs[0], xs[2])), _two((xs[1], xs[3]))
    rotated = times_minus_i(odd[1])
    return [even[0] + odd[0], even[1] + rotated, even[0] - odd[0], even[1] - rotated]


def _eight(xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _four(xs[::2]), _four(xs[1::2])
    root = math.sqrt(0.5)
    rotated = [
        odd[0],
        (odd[1] + times_minus_i(odd[1])).times(root),
        times_minus_i(odd[2]),
        (times_minus_i(odd[3]) - odd[3]).times(root),
    ]
    sums = [a + b for a, b in zip(even, rotated, strict=True)]
    return sums + [a - b for a, b in zip(even, rotated, strict=True)]


def _three(xs: Sequence[Complex]) -> list[Complex]:
    total, difference = _two(xs[1:])
    middle = plus_scaled(xs[0], total, -0.5)
    rotated = times_minus_i(difference).times(math.sin(2 * math.pi / 3))
    return [xs[0] + total, middle + rotated, middle - rotated]


def _five(xs: Sequence[Complex]) -> list[Complex]:
    (outer, outer_less), (inner, inner_less) = _two((xs[1], xs[4])), _two((xs[2], xs[3]))
    cosines = [math.cos(2 * math.pi * k / 5) for k in (1, 2)]
    sines = [math.sin(2 * math.pi * k / 5) for k in (1, 2)]
    results: list[Complex] = [(xs[0] + outer) + inner]
    ends: list[Complex] = []
    for first, second, sign in ((0, 1, 1), (1, 0, -1)):
        level = plus_scaled(plus_scaled(xs[0], outer, cosines[first]), inner, cosines[second])
        rotated = plus_scaled(outer_less.times(sines[first]), inner_less, sign * sines[second])
        rotated = times_minus_i(rotated)
        results.append(level + rotated)
        ends.append(level - rotated)
    return [*results, *reversed(ends)]


#: Format of the parts of a number, by their bytes.
FORMATS = {4: F32, 8: F64}
