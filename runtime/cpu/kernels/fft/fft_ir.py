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
from typing import TypeAlias

from runtime.codegen.elements.builder import F32, F64, FloatFormat
from runtime.codegen.ir.function_writer import Cursor, NestWriter
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes

FUNCTION = "spmd_fft_pass"
RADICES = (8, 5, 4, 3, 2)
#: A bundle's real parts, or imaginary ones, of one element.
VECTOR_BYTES = 64

#: Registers that hold a vector of real parts and one of imaginary parts.
Complex: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PassForm:
    """form: of a part. first: transforms of one point are put together, which takes no twiddle factors."""

    form: FloatFormat
    radix: int
    first: bool


@dataclass(frozen=True, slots=True)
class PassWords:
    """``blocks`` transforms of radix * ``points`` points, one behind the other in the buffer.

    twiddles: for each k < points the factors exp(-2 pi i k q / (radix * points)) of q = 1, .., radix - 1.
    """

    buffer: int
    blocks: int
    points: int
    twiddles: int

    def packed(self) -> list[int]:
        return [self.buffer, self.blocks, self.points, self.twiddles]


@cache
def pass_code(form: PassForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    ir = "\n".join([multiply_add(form.form), _Pass(form).function()])
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


def lanes_of(form: FloatFormat) -> int:
    return VECTOR_BYTES * 8 // form.bits


def multiply_add(form: FloatFormat) -> str:
    t = vector_type(form)
    return f"declare {t} @llvm.fmuladd.v{lanes_of(form)}{form.suffix}({t}, {t}, {t})"


def vector_type(form: FloatFormat) -> str:
    return f"<{lanes_of(form)} x {form.name}>"


class VectorWriter(NestWriter):
    """Arithmetic of vectors of complex numbers, in the slots of a buffer."""

    def __init__(self, form: FloatFormat) -> None:
        super().__init__()
        self.form = form
        self.type = vector_type(form)

    def moved_by(self, base: str, way: str | int) -> str:
        return self.value(f"getelementptr i8, ptr {base}, i64 {way}")

    def load(self, slot: str) -> Complex:
        imaginary = self.moved_by(slot, VECTOR_BYTES)
        return self.load_part(slot), self.load_part(imaginary)

    def load_part(self, place: str, align: int = VECTOR_BYTES) -> str:
        return self.value(f"load {self.type}, ptr {place}, align {align}")

    def store(self, x: Complex, slot: str) -> None:
        self.store_part(x[0], slot)
        self.store_part(x[1], self.moved_by(slot, VECTOR_BYTES))

    def store_part(self, x: str, place: str, align: int = VECTOR_BYTES) -> None:
        self.add(f"store {self.type} {x}, ptr {place}, align {align}")

    def binary(self, operation: str, a: str, b: str) -> str:
        return self.value(f"{operation} {self.type} {a}, {b}")

    def plus(self, x: Complex, y: Complex) -> Complex:
        return self.binary("fadd", x[0], y[0]), self.binary("fadd", x[1], y[1])

    def minus(self, x: Complex, y: Complex) -> Complex:
        return self.binary("fsub", x[0], y[0]), self.binary("fsub", x[1], y[1])

    def times_plus(self, a: str, b: str, c: str) -> str:
        """a b + c"""
        arguments = ", ".join(f"{self.type} {x}" for x in (a, b, c))
        name = f"@llvm.fmuladd.v{lanes_of(self.form)}{self.form.suffix}"
        return self.value(f"call {self.type} {name}({arguments})")

    def negative(self, a: str) -> str:
        return self.value(f"fneg {self.type} {a}")

    def constant(self, value: float) -> str:
        return f"splat ({self.form.name} {self.form.literal(value)})"

    def scaled(self, x: Complex, factor: str) -> Complex:
        return self.binary("fmul", x[0], factor), self.binary("fmul", x[1], factor)

    def plus_scaled(self, x: Complex, y: Complex, factor: float) -> Complex:
        """x + factor y"""
        by = self.constant(factor)
        return self.times_plus(y[0], by, x[0]), self.times_plus(y[1], by, x[1])

    def times(self, x: Complex, y: Complex) -> Complex:
        below = self.negative(self.binary("fmul", x[1], y[1]))
        across = self.binary("fmul", x[1], y[0])
        return self.times_plus(x[0], y[0], below), self.times_plus(x[0], y[1], across)

    def times_minus_i(self, x: Complex) -> Complex:
        return x[1], self.negative(x[0])

    def everywhere(self, place: str) -> Complex:
        """The complex number at ``place``, in all lanes."""
        parts = []
        for part in range(2):
            at = self.moved_by(place, part * self.form.bits // 8)
            one = self.value(f"load {self.form.name}, ptr {at}")
            lane = self.value(f"insertelement {self.type} poison, {self.form.name} {one}, i64 0")
            zeros = f"<{lanes_of(self.form)} x i32> zeroinitializer"
            parts.append(
                self.value(f"shufflevector {self.type} {lane}, {self.type} poison, {zeros}")
            )
        return parts[0], parts[1]


class _Pass:
    """Writes the function."""

    def __init__(self, form: PassForm) -> None:
        self.form = form
        self.writer = VectorWriter(form.form)

    def function(self) -> str:
        writer, radix = self.writer, self.form.radix
        value, word = writer.value, writer.next_word
        buffer, blocks, points, twiddles = word("ptr"), word(), word(), word("ptr")
        slot = 2 * VECTOR_BYTES
        if self.form.first:
            with writer.loop(blocks, {0: Cursor(buffer, str(radix * slot))}) as (_, at):
                self.butterfly([writer.moved_by(at[0], q * slot) for q in range(radix)], None)
            return writer.function(FUNCTION)
        ways = [value(f"mul i64 {points}, {q * slot}") for q in range(radix + 1)]
        factors = (radix - 1) * 2 * self.form.form.bits // 8
        with writer.loop(blocks, {0: Cursor(buffer, ways[radix])}) as (_, at):
            cursors = {0: Cursor(at[0], str(slot)), 1: Cursor(twiddles, str(factors))}
            with writer.loop(points, cursors) as (_, here):
                slots = [writer.moved_by(here[0], way) for way in ways[:radix]]
                self.butterfly(slots, here[1])
        return writer.function(FUNCTION)

    def butterfly(self, slots: list[str], twiddles: str | None) -> None:
        writer, size = self.writer, 2 * self.form.form.bits // 8
        xs = [writer.load(slot) for slot in slots]
        if twiddles is not None:
            for q in range(1, len(xs)):
                factor = writer.everywhere(writer.moved_by(twiddles, (q - 1) * size))
                xs[q] = writer.times(xs[q], factor)
        for x, slot in zip(transform(writer, xs), slots, strict=True):
            writer.store(x, slot)


def transform(writer: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    """The transform of as many points as a radix has."""
    return {2: _two, 3: _three, 4: _four, 5: _five, 8: _eight}[len(xs)](writer, xs)


def _two(w: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    return [w.plus(*xs), w.minus(*xs)]


def _four(w: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _two(w, (xs[0], xs[2])), _two(w, (xs[1], xs[3]))
    turned = w.times_minus_i(odd[1])
    return [
        w.plus(even[0], odd[0]),
        w.plus(even[1], turned),
        w.minus(even[0], odd[0]),
        w.minus(even[1], turned),
    ]


def _eight(w: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    even, odd = _four(w, xs[::2]), _four(w, xs[1::2])
    root = w.constant(math.sqrt(0.5))
    turned = [
        odd[0],
        w.scaled(w.plus(odd[1], w.times_minus_i(odd[1])), root),
        w.times_minus_i(odd[2]),
        w.scaled(w.minus(w.times_minus_i(odd[3]), odd[3]), root),
    ]
    sums = [w.plus(a, b) for a, b in zip(even, turned, strict=True)]
    return sums + [w.minus(a, b) for a, b in zip(even, turned, strict=True)]


def _three(w: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    total, difference = _two(w, xs[1:])
    middle = w.plus_scaled(xs[0], total, -0.5)
    turned = w.scaled(w.times_minus_i(difference), w.constant(math.sin(2 * math.pi / 3)))
    return [w.plus(xs[0], total), w.plus(middle, turned), w.minus(middle, turned)]


def _five(w: VectorWriter, xs: Sequence[Complex]) -> list[Complex]:
    (outer, outer_less), (inner, inner_less) = _two(w, (xs[1], xs[4])), _two(w, (xs[2], xs[3]))
    cosines = [math.cos(2 * math.pi * k / 5) for k in (1, 2)]
    sines = [math.sin(2 * math.pi * k / 5) for k in (1, 2)]
    results: list[Complex] = [w.plus(w.plus(xs[0], outer), inner)]
    ends: list[Complex] = []
    for first, second, sign in ((0, 1, 1), (1, 0, -1)):
        level = w.plus_scaled(w.plus_scaled(xs[0], outer, cosines[first]), inner, cosines[second])
        turned = w.plus_scaled(
            w.scaled(outer_less, w.constant(sines[first])), inner_less, sign * sines[second]
        )
        turned = w.times_minus_i(turned)
        results.append(w.plus(level, turned))
        ends.append(w.minus(level, turned))
    return [*results, *reversed(ends)]


#: By the type of the real parts.
FORMATS = {4: F32, 8: F64}
