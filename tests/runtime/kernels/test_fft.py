"""Transforms of all kinds and ranks, in memory of their own and over their operand, against the evaluator."""

from __future__ import annotations

import pytest

from runtime.kernels.fft import FftKernel
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
