"""Native code of Fourier transforms of a bundle of lines: as many as a vector has lanes, so that no lane needs another.

The bundle lies in a buffer of slots, a slot for each element of a line: all real parts, then all imaginary parts. A
transform of n points is a pass for each factor of n (decimation in time: J. W. Cooley, J. W. Tukey, "An algorithm for
the machine calculation of complex Fourier series", 1965), in place, after the elements were put where the factors'
digits in reverse order say. A pass of radix r makes transforms of r m points out of r that have m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import F32, F64, FloatFormat, VectorFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer, splat
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes

FUNCTION = "spmd_fft_pass"
RADICES = (8, 5, 4, 3, 2)
#: A bundle's real parts, or imaginary ones, of one element.
VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class PassForm:
    """form: of a part. first: transforms of one point are put together, which takes no twiddle factors."""

    form: FloatFormat
    radix: int
    first: bool


@record
class PassRecord(Record):
    """``blocks`` transforms of radix * ``points`` points, one behind the other in the buffer.

    twiddles: for each k < points the factors exp(-2 pi i k q / (radix * points)) of q = 1, .., radix - 1.
    """

    buffer: Address
    blocks: Word
    points: Word
    twiddles: Address


@cache
def pass_code(form: PassForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a PassRecord."""
    return host_jit().compile(_pass_ir(form), (FUNCTION,), passes=Passes.TIDY)


def lanes_of(form: FloatFormat) -> int:
    return VECTOR_BYTES * 8 // form.bits


def vectors_of(form: FloatFormat) -> VectorFormat:
    return VectorFormat.of(form, lanes_of(form))


def multiply_add(form: FloatFormat) -> str:
    t = vectors_of(form)
    return f"declare {t.name} @llvm.fmuladd.{t.suffix}({t.name}, {t.name}, {t.name})"


# ---- complex numbers in the slots of a buffer
def load_slot(slot: Pointer, form: FloatFormat) -> Complex:
    vectors, imaginary = vectors_of(form), slot.at(VECTOR_BYTES)
    re, im = (place.load(vectors, align=VECTOR_BYTES) for place in (slot, imaginary))
    return Complex(re, im)


def store_slot(x: Complex, slot: Pointer) -> None:
    slot.store(x.re, align=VECTOR_BYTES)
    slot.at(VECTOR_BYTES).store(x.im, align=VECTOR_BYTES)


def in_all_lanes(place: Pointer, form: FloatFormat) -> Complex:
    """Return the complex number at ``place``, in all lanes."""
    vectors, size = vectors_of(form), form.bits // 8
    re, im = (
        Float(place.code, vectors, splat(place.at(part * size).load(form), vectors.lanes).name)
        for part in range(2)
    )
    return Complex(re, im)


def product(x: Complex, y: Complex) -> Complex:
    """Return x y, with products and sums rounded at once where that is fast."""
    below = -(x.im * y.im)
    across = x.im * y.re
    return Complex(x.re.times_plus(y.re, below), x.re.times_plus(y.im, across))


def plus_scaled(x: Complex, y: Complex, factor: float) -> Complex:
    """Return x + factor y."""
    return Complex(y.re.times_plus(factor, x.re), y.im.times_plus(factor, x.im))


def times_minus_i(x: Complex) -> Complex:
    return Complex(x.im, -x.re)


# ---- the function
def _pass_ir(form: PassForm) -> str:
    f = FunctionWriter(FUNCTION, PassRecord, module=Module(multiply_add(form.form)))
    rec, radix, slot = f.record, form.radix, 2 * VECTOR_BYTES
    buffer, blocks = rec.buffer, rec.blocks
    if form.first:
        with f.cursor_loop(blocks, {0: Cursor(buffer, radix * slot)}) as (_, at):
            _butterfly(form, [at[0].at(q * slot) for q in range(radix)], None)
        return f.end()
    points, twiddles = rec.points, rec.twiddles
    ways = [points * (q * slot) for q in range(radix + 1)]
    factors = (radix - 1) * 2 * form.form.bits // 8
    with f.cursor_loop(blocks, {0: Cursor(buffer, ways[radix])}) as (_, at):
        cursors = {0: Cursor(at[0], slot), 1: Cursor(twiddles, factors)}
        with f.cursor_loop(points, cursors) as (_, here):
            _butterfly(form, [here[0].at(way) for way in ways[:radix]], here[1])
    return f.end()


def _butterfly(form: PassForm, slots: list[Pointer], twiddles: Pointer | None) -> None:
    size = 2 * form.form.bits // 8
    xs = [load_slot(slot, form.form) for slot in slots]
    if twiddles is not None:
        for q in range(1, len(xs)):
            xs[q] = product(xs[q], in_all_lanes(twiddles.at((q - 1) * size), form.form))
    for x, slot in zip(transform(xs), slots, strict=True):
        store_slot(x, slot)


def transform(xs: Sequence[Complex]) -> list[Complex]:
    """The transform of as many points as a radix has."""
    return {2: _two, 3: _three, 4: _four, 5: _five, 8: _eight}[len(xs)](xs)


def _two(xs: Sequence[Complex]) -> list[Complex]:
    return [xs[0] + xs[1], xs[0] - xs[1]]


def _four(xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _two((xs[0], xs[2])), _two((xs[1], xs[3]))
    turned = times_minus_i(odd[1])
    return [even[0] + odd[0], even[1] + turned, even[0] - odd[0], even[1] - turned]


def _eight(xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _four(xs[::2]), _four(xs[1::2])
    root = math.sqrt(0.5)
    turned = [
        odd[0],
        (odd[1] + times_minus_i(odd[1])).times(root),
        times_minus_i(odd[2]),
        (times_minus_i(odd[3]) - odd[3]).times(root),
    ]
    sums = [a + b for a, b in zip(even, turned, strict=True)]
    return sums + [a - b for a, b in zip(even, turned, strict=True)]


def _three(xs: Sequence[Complex]) -> list[Complex]:
    total, difference = _two(xs[1:])
    middle = plus_scaled(xs[0], total, -0.5)
    turned = times_minus_i(difference).times(math.sin(2 * math.pi / 3))
    return [xs[0] + total, middle + turned, middle - turned]


def _five(xs: Sequence[Complex]) -> list[Complex]:
    (outer, outer_less), (inner, inner_less) = _two((xs[1], xs[4])), _two((xs[2], xs[3]))
    cosines = [math.cos(2 * math.pi * k / 5) for k in (1, 2)]
    sines = [math.sin(2 * math.pi * k / 5) for k in (1, 2)]
    results: list[Complex] = [(xs[0] + outer) + inner]
    ends: list[Complex] = []
    for first, second, sign in ((0, 1, 1), (1, 0, -1)):
        level = plus_scaled(plus_scaled(xs[0], outer, cosines[first]), inner, cosines[second])
        turned = plus_scaled(outer_less.times(sines[first]), inner_less, sign * sines[second])
        turned = times_minus_i(turned)
        results.append(level + turned)
        ends.append(level - turned)
    return [*results, *reversed(ends)]


#: By the type of the real parts.
FORMATS = {4: F32, 8: F64}
