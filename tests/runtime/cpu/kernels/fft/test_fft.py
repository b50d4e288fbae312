"""Tests of transforms of all kinds and ranks, in memory of their own and over their operand, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.kernels.fft.fft_batches import batch_dims, uses_batches
from runtime.cpu.kernels.fft.fft_plan import radices_of
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.fft import FftKernel
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.programs import compiled
from tests.runtime.programs.agreement import assert_agrees, kernels_of

FORMS = [
    ("c64[3,8]", "c64[3,8]", "FFT", "8"),
    ("c128[5,4,6]", "c128[5,4,6]", "IFFT", "4,6"),
    ("c64[4,3,5]", "c64[4,3,5]", "FFT", "4,3,5"),
    ("c64[1,7]", "c64[1,7]", "IFFT", "1,7"),
    ("f32[3,8]", "c64[3,5]", "RFFT", "8"),
    ("f64[2,4,7]", "c128[2,4,4]", "RFFT", "4,7"),
    ("c64[3,5]", "f32[3,8]", "IRFFT", "8"),
    ("c128[3,4,5]", "f64[3,4,9]", "IRFFT", "4,9"),
    ("c64[2,3,101]", "c64[2,3,101]", "FFT", "101"),
    ("c64[20,8,6]", "c64[20,8,6]", "FFT", "8,6"),
    ("f32[5,4,12]", "c64[5,4,7]", "RFFT", "4,12"),
    ("c64[9,4,5]", "f32[9,4,8]", "IRFFT", "4,8"),
]


def check(text: str) -> None:
    kernels = kernels_of(assert_agrees(text, rtol=2e-5))
    assert any(isinstance(kernel, FftKernel) for kernel in kernels)


@pytest.mark.parametrize(("x", "y", "kind", "length"), FORMS)
def test_fft(x: str, y: str, kind: str, length: str) -> None:
    check(f"""HloModule transforms
    ENTRY main {{
      x = {x} parameter(0)
      ROOT y = {y} fft(x), fft_type={kind}, fft_length={{{length}}}
    }}
    """)


@pytest.mark.parametrize(("x", "y", "kind", "length"), [f for f in FORMS if f[0] == f[1]])
def test_fft_over_its_operand(x: str, y: str, kind: str, length: str) -> None:
    text = f"""HloModule transforms
    ENTRY main {{
      p = {x} parameter(0)
      n = {x} negate(p)
      y = {y} fft(n), fft_type={kind}, fft_length={{{length}}}
      ROOT z = {y} negate(y)
    }}
    """
    where = {value.name: value.slice for value in compiled(text).program.assignment.values}
    assert where["y"] == where["n"]
    check(text)


def test_fft_of_a_view() -> None:
    check("""HloModule transforms
    ENTRY main {
      x = c64[8,3] parameter(0)
      t = c64[3,8] transpose(x), dimensions={1,0}
      r = c64[3,8] reverse(t), dimensions={1}
      ROOT y = c64[3,8] fft(r), fft_type=FFT, fft_length={3,8}
    }
    """)


def aligned(dims: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray:
    """Return an array that is aligned as the heap's arrays are, and holds nan."""
    size = int(np.prod(dims)) * dtype.itemsize
    memory = np.full(size + 64, 255, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size].view(dtype).reshape(dims)


def bundled_error(transform: str, points: int, lines: int, part: str, layouts: str) -> float:
    """Return the error of a transform beside one in more digits, in units of the type's precision.

    ``layouts`` says whether operand and result lie by rows (r) or by columns (c).
    """
    rng = np.random.default_rng(points)
    real, whole = np.dtype(part), np.dtype(f"c{2 * int(part[1:])}")
    wide = np.longdouble if real.itemsize == 8 else np.float64
    half = points // 2 + 1
    x = rng.standard_normal((lines, half if transform == "IRFFT" else points)).astype(wide)
    if transform != "RFFT":
        x = x + 1j * rng.standard_normal(x.shape)
    x = x.astype(real if transform == "RFFT" else whole)
    exact = x.astype(wide if transform == "RFFT" else np.result_type(wide, np.complex64))
    function = {"FFT": np.fft.fft, "IFFT": np.fft.ifft, "RFFT": np.fft.rfft, "IRFFT": np.fft.irfft}
    wanted = function[transform](exact, points)
    dims = wanted.shape if layouts[1] == "r" else wanted.shape[::-1]
    out = aligned(dims, real if transform == "IRFFT" else whole)
    out = out if layouts[1] == "r" else out.T
    assert uses_batches(transform, points, lines, real)
    buffer = aligned(batch_dims(transform, points, real), real)
    kernel = FftKernel(transform, 1, points, PrimitiveType.from_numpy(whole))
    operand = x if layouts[0] == "r" else np.asfortranarray(x)
    CPU_KERNELS.bind(kernel, KernelArrays((operand,), (out,), (buffer,)))()
    error = np.linalg.norm(out - wanted) / np.linalg.norm(wanted)
    return float(error / np.finfo(part).eps)


@pytest.mark.parametrize("part", ["f4", "f8"])
@pytest.mark.parametrize("transform", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("points", [4, 10, 24, 64, 100, 128, 512, 1000])
def test_bundles_of_lines(transform: str, points: int, part: str) -> None:
    """Lines fill whole batches or leave some over, in rows and columns; the points have all radices."""
    for lines in (16, 37):
        for layouts in ("rr", "cc", "cr", "rc"):
            error = bundled_error(transform, points, lines, part, layouts)
            assert error < 0.5 + 0.2 * np.log2(points), (lines, layouts)


def test_bundles_of_several_dimensions_over_their_operand() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 20, 18, 32)) + 1j * rng.standard_normal((3, 20, 18, 32))
    data = aligned(x.shape, np.dtype(np.complex128))
    data[:] = x
    buffer = aligned(batch_dims("FFT", 32, np.dtype(np.float64)), np.dtype(np.float64))
    kernel = FftKernel("FFT", 3, 32, PrimitiveType.C128)
    CPU_KERNELS.bind(kernel, KernelArrays((data,), (data,), (buffer,)))()
    np.testing.assert_allclose(data, np.fft.fftn(x, axes=(1, 2, 3)), rtol=0, atol=1e-11)


def test_points_with_other_factors_are_transformed_line_by_line() -> None:
    assert radices_of(7 * 8) is None
    assert radices_of(3 * 4 * 5 * 8) == (8, 5, 4, 3)
    assert radices_of(2 * 8 * 8) == (8, 4, 4)
    part = np.dtype(np.float32)
    assert uses_batches("FFT", 8, 16, part)
    assert not uses_batches("FFT", 8, 15, part)
    assert not uses_batches("FFT", 7 * 8, 16, part)
    assert not uses_batches("RFFT", 15, 16, part)


@pytest.mark.parametrize("dims", [(6, 1), (1, 6)])
def test_lines_over_their_operand_with_other_strides_of_single_elements(
    dims: tuple[int, int],
) -> None:
    memory = np.arange(6).astype(np.complex64)
    strides = [tuple(8 if n > 1 else other for n in dims) for other in (8, 48)]
    source, out = (np.lib.stride_tricks.as_strided(memory, dims, each) for each in strides)
    wanted = np.fft.fft(source)
    CPU_KERNELS.bind(
        FftKernel("FFT", 1, dims[-1], PrimitiveType.C64), KernelArrays((source,), (out,))
    )()
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
