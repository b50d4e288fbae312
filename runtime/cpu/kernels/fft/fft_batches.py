"""Transforms of batches of lines by native code: the conditions of their use, and their calls."""

from __future__ import annotations

import numpy as np

from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.llvm.jit import NativeLibrary
from runtime.cpu.kernels.fft import fft_ir, fft_load_store_ir, fft_real_ir
from runtime.cpu.kernels.fft.fft_ir import (
    FORMATS,
    VECTOR_BYTES,
    FftPassVariant,
    PassRecord,
    lanes_of,
)
from runtime.cpu.kernels.fft.fft_load_store_ir import Lie, LinesRecord, LinesVariant
from runtime.cpu.kernels.fft.fft_plan import digit_reversal, radices_of, roots_of_unity, twiddles_of
from runtime.cpu.kernels.fft.fft_real_ir import RealRecord, RealVariant
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, native_call, repeated
from runtime.program.argument_record import Record
from runtime.program.strides import merged_dims
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

COMPLEX_BYTES = 2 * VECTOR_BYTES
#: Most points of a line that is transformed in batches: the buffer should fit in the L2 cache (Zen 5: pocketfft takes
#: 1.5 to 4.8 of the time up to there, 1.4 to 1.7 up to 2^16, 0.9 with 2^18).
MOST_POINTS = 1 << 13


def points_of(transform: str, length: int) -> int | None:
    """Return the number of points of the complex transform that computes ``transform`` of lines of ``length`` elements.

    A transform of real numbers takes their pairs as complex numbers. Returns None if ``length`` is odd then.
    """
    if transform in ("FFT", "IFFT"):
        return length
    return length // 2 if length % 2 == 0 else None


def uses_batches(transform: str, length: int, lines: int, part: np.dtype[np.generic]) -> bool:
    """Return whether ``lines`` lines of ``length`` elements are transformed in batches by native code.

    There must be enough lines for a batch, because unused lanes take as long as others. The number of points must be at
    most MOST_POINTS and a product of radices. ``part`` is the type of a real or imaginary part.
    """
    points = points_of(transform, length)
    return (
        points is not None
        and 2 <= points <= MOST_POINTS
        and lines >= VECTOR_BYTES // part.itemsize
        and radices_of(points) is not None
    )


def batch_dims(transform: str, length: int, part: np.dtype[np.generic]) -> tuple[int, ...]:
    """Return the sizes of the buffer, [points + 1, 2 parts, lanes].

    A transform of real numbers needs one element more than it has points.
    """
    points = points_of(transform, length)
    assert points is not None, "it was asked for before"
    return (points + 1, 2, VECTOR_BYTES // part.itemsize)


@dataclass(frozen=True, slots=True)
class _Side:
    """Lines of an array of complex numbers, or of pairs of real numbers.

    A line has ``count`` elements. ``line_step`` is the stride between lines, ``element_step`` that between elements,
    and ``part`` that from a real to its imaginary part, all in bytes.
    """

    array: NDArray
    line_step: int
    count: int
    element_step: int
    part: int

    def lie(self, part_bytes: int) -> Lie:
        """Return the layout of the lines. ``part_bytes`` is the size of a part."""
        if self.part == part_bytes:
            if self.element_step == 2 * part_bytes:
                return Lie.ALONG
            if self.line_step == 2 * part_bytes:
                return Lie.ACROSS
        return Lie.APART


def _side(x: NDArray, axis: int, line_step: int) -> _Side:
    """Return the lines of ``x`` along ``axis``, which are ``line_step`` bytes apart."""
    step = x.strides[axis]
    if x.dtype.kind == "c":
        return _Side(x, line_step, x.shape[axis], step, x.itemsize // 2)
    return _Side(x, line_step, x.shape[axis] // 2, 2 * step, step)


def line_dims(source: NDArray, target: NDArray, axis: int) -> list[tuple[int, int, int]]:
    """Return the merged dimensions that number lines along ``axis``: size, stride in source and stride in target."""
    others = [d for d in range(source.ndim) if d != axis]
    sizes, (steps, target_steps) = merged_dims(
        [source.shape[d] for d in others],
        [[x.strides[d] for d in others] for x in (source, target)],
    )
    return [*zip(sizes, steps, target_steps, strict=True)] or [(1, 0, 0)]


def batched_lines(
    transform: str, source: NDArray, target: NDArray, axis: int, buffer: NDArray
) -> NativeAction:
    """Bind target = transform of source along ``axis``, in batches of lines through ``buffer``.

    Source and target may be the same memory, and neither is empty.
    """
    dims = line_dims(source, target, axis)
    # Adjacent lines make the best batches, then the dimension with most lines.
    chosen = max(range(len(dims)), key=lambda d: (dims[d][1] == source.itemsize, dims[d][0]))
    lines, step, target_step = dims.pop(chosen)
    length = source.shape[axis] if transform == "RFFT" else target.shape[axis]
    batch = _Batch(
        transform, length, _side(source, axis, step), _side(target, axis, target_step), buffer
    )
    lanes = lanes_of(batch.part_format)
    full, rest = divmod(lines, lanes)
    parts = [(lanes, 0)] * (full > 0) + [(rest, full * lanes)] * (rest > 0)
    calls, records = [], []
    for count, first in parts:
        made = batch.calls(count, first)
        load, store = made[0].record, made[-1].record
        if count == lanes:
            moves = [(load, lanes * step), (store, lanes * target_step)]
            made = list(repeated(full, made, moves))
        records.append((load, store))
        calls += made
    for count, *steps in reversed(dims):
        moves = [move for pair in records for move in zip(pair, steps, strict=True)]
        calls = list(repeated(count, calls, moves))
    return NativeAction(calls)


@dataclass(frozen=True)
class _Batch:
    """Transform of a batch of lines of ``length`` elements from ``source`` to ``target``, through ``buffer``."""

    transform: str
    length: int
    source: _Side
    target: _Side
    buffer: NDArray

    @property
    def part_format(self) -> FloatFormat:
        """Return the format of a real or imaginary part."""
        return FORMATS[self.buffer.itemsize]

    @property
    def points(self) -> int:
        """Return the number of points of the complex transform."""
        points = points_of(self.transform, self.length)
        assert points is not None, "it was asked for before"
        return points

    def calls(self, lines: int, first: int) -> list[NativeCall]:
        """Return the calls for ``lines`` lines from number ``first`` on. The first call loads, the last one stores."""
        scale = 1 / self.length if self.transform.startswith("I") else 1.0
        natural = COMPLEX_BYTES * np.arange(self.points + 1)
        scattered = COMPLEX_BYTES * np.append(digit_reversal(self.points), self.points)
        swaps = self.transform == "IFFT"
        calls = [self._lines(self.source, lines, first, scattered, 1.0, swaps, stores=False)]
        if self.transform == "IRFFT":
            calls.append(self._real(scattered))
        calls += self._passes()
        if self.transform == "RFFT":
            calls.append(self._real(natural))
        swaps = self.transform in ("IFFT", "IRFFT")
        return [*calls, self._lines(self.target, lines, first, natural, scale, swaps, stores=True)]

    def _lines(
        self,
        side: _Side,
        lines: int,
        first: int,
        offsets: NDArray,
        scale: float,
        swaps: bool,
        *,
        stores: bool,
    ) -> NativeCall:
        """Return the call that loads ``lines`` lines of ``side`` into the buffer, or that stores them.

        ``offsets`` are those of elements in the buffer in bytes. ``swaps`` tells that real and imaginary parts are
        exchanged.
        """
        factor = np.array(scale, self.buffer.dtype)
        lie = side.lie(self.buffer.itemsize) if lines == lanes_of(self.part_format) else Lie.APART
        record = LinesRecord(
            side.array.ctypes.data + first * side.line_step,
            self.buffer.ctypes.data,
            offsets.ctypes.data,
            factor.ctypes.data,
            lines,
            side.line_step,
            side.count,
            side.element_step,
            side.part,
        )
        code = fft_load_store_ir.lines_code(LinesVariant(self.part_format, lie, stores, swaps))
        return _call(
            code, fft_load_store_ir.FUNCTION, record, (side.array, self.buffer, offsets, factor)
        )

    def _real(self, offsets: NDArray) -> NativeCall:
        """Return the call that converts between the transform of real lines and that of their pairs."""
        numbers = np.arange(1, self.points // 2 + 1)
        twiddles = roots_of_unity(numbers, 2 * self.points, self.buffer.dtype)
        record = RealRecord(
            self.buffer.ctypes.data, self.points, twiddles.ctypes.data, offsets.ctypes.data
        )
        code = fft_real_ir.real_code(RealVariant(self.part_format, self.transform == "IRFFT"))
        return _call(code, fft_real_ir.FUNCTION, record, (self.buffer, twiddles, offsets))

    def _passes(self) -> list[NativeCall]:
        """Return a call for each radix of the number of points."""
        radices, done, calls = radices_of(self.points), 1, []
        assert radices is not None, "it was asked for before"
        for radix in radices:
            twiddles = twiddles_of(done * radix, radix, self.buffer.dtype.str)
            record = PassRecord(
                self.buffer.ctypes.data,
                self.points // (done * radix),
                done,
                twiddles.ctypes.data,
            )
            code = fft_ir.pass_code(FftPassVariant(self.part_format, radix, done == 1))
            calls.append(_call(code, fft_ir.FUNCTION, record, (self.buffer, twiddles)))
            done *= radix
        return calls


def _call(
    code: NativeLibrary,
    name: str,
    record: Record,
    arrays: tuple[NDArray, ...],
) -> NativeCall:
    (call,) = native_call(code, name, record.to_array(), arrays).calls
    return call
