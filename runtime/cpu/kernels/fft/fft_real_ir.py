"""Native code between the transform of a line of real numbers and that of its pairs as complex ones, half as many.

Z = transform of x[2 j] + i x[2 j + 1], h points, and X = that of x, of which 0 to h are told by the others. With
E = (Z[k] + conj Z[h - k]) / 2 and O = -i (Z[k] - conj Z[h - k]) / 2, the transforms of even and odd elements,
X[k] = E + w O and X[h - k] = conj(E - w O), where w = exp(-pi i k / h).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cache

from runtime.codegen.elements.builder import FloatFormat
from runtime.codegen.ir.function_writer import Cursor
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.fft.fft_ir import Complex, VectorWriter, multiply_add

FUNCTION = "spmd_fft_real"


@dataclass(frozen=True, slots=True)
class RealForm:
    """form: of a part. inverse: Z is made of X, doubled and with its parts swapped, else X of Z."""

    form: FloatFormat
    inverse: bool


@dataclass(frozen=True, slots=True)
class RealWords:
    """Numbers 0 to ``half`` lie at ``places``, in bytes from the buffer's beginning; what is made takes their slots.

    twiddles: w of k = 1, .., half / 2.
    """

    buffer: int
    half: int
    twiddles: int
    places: int

    def packed(self) -> list[int]:
        return list(astuple(self))


@cache
def real_code(form: RealForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    ir = "\n".join([multiply_add(form.form), _Real(form).function()])
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


class _Real:
    """Writes the function."""

    def __init__(self, form: RealForm) -> None:
        self.form = form
        self.writer = VectorWriter(form.form)

    def function(self) -> str:
        writer, value, word = self.writer, self.writer.value, self.writer.next_word
        self.buffer, half, twiddles, self.places = word("ptr"), word(), word("ptr"), word("ptr")
        self.ends(self.slot("0"), self.slot(half))
        pairs = value(f"udiv i64 {half}, 2")
        step = 2 * self.form.form.bits // 8
        with (
            writer.unless_zero(pairs),
            writer.loop(pairs, {0: Cursor(twiddles, str(step))}) as (number, at),
        ):
            k = value(f"add i64 {number}, 1")
            near, far = self.slot(k), self.slot(value(f"sub i64 {half}, {k}"))
            make = self.inverse_pair if self.form.inverse else self.pair
            x, y = make(writer.load(near), writer.load(far), writer.everywhere(at[0]))
            writer.store(x, near)
            writer.store(y, far)
        return writer.function(FUNCTION)

    def ends(self, first: str, last: str) -> None:
        """X[0] and X[h], which are real: sum and difference of the parts of Z[0]."""
        writer = self.writer
        if self.form.inverse:
            real, other = writer.load(first)[0], writer.load(last)[0]
            total = writer.binary("fadd", real, other), writer.binary("fsub", real, other)
            writer.store((total[1], total[0]), first)
            return
        real, imaginary = writer.load(first)
        zero = writer.constant(0.0)
        writer.store((writer.binary("fadd", real, imaginary), zero), first)
        writer.store((writer.binary("fsub", real, imaginary), zero), last)

    def pair(self, x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
        writer = self.writer
        y, half = self.conjugate(y), writer.constant(0.5)
        even = writer.scaled(writer.plus(x, y), half)
        odd = writer.scaled(writer.times_minus_i(writer.minus(x, y)), half)
        turned = writer.times(odd, twiddle)
        return writer.plus(even, turned), self.conjugate(writer.minus(even, turned))

    def inverse_pair(self, x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
        """(even + i odd) and (conj even + i conj odd), the parts of which are swapped."""
        writer = self.writer
        y = self.conjugate(y)
        even = writer.plus(x, y)
        odd = writer.times(writer.minus(x, y), self.conjugate(twiddle))
        turned = writer.times_minus_i(odd)
        near = writer.minus(even, turned)
        far = self.conjugate(writer.plus(even, turned))
        return (near[1], near[0]), (far[1], far[0])

    def conjugate(self, x: Complex) -> Complex:
        return x[0], self.writer.negative(x[1])

    def slot(self, number: str) -> str:
        place = self.writer.value(f"getelementptr i64, ptr {self.places}, i64 {number}")
        return self.writer.moved_by(self.buffer, self.writer.value(f"load i64, ptr {place}"))
