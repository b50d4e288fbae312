"""cholesky, triangular-solve, fft."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CholeskyAttrs, FftAttrs, TriangularSolveAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter

_FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
_TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _read_triangular_solve(values: AttrValues) -> TriangularSolveAttrs:
    return TriangularSolveAttrs(
        values.flag("left_side"),
        values.flag("lower"),
        values.flag("unit_diagonal"),
        values.need_word("transpose_a", _TRANSPOSES) if "transpose_a" in values else "NO_TRANSPOSE",
    )


def _write_triangular_solve(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(TriangularSolveAttrs)
    out.flag("left_side", attrs.left_side)
    out.flag("lower", attrs.lower)
    out.flag("unit_diagonal", attrs.unit_diagonal)
    out.add("transpose_a", attrs.transpose_a)


def _read_fft(values: AttrValues) -> FftAttrs:
    return FftAttrs(values.need_word("fft_type", _FFT_TYPES), values.need_ints("fft_length"))


def _write_fft(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FftAttrs)
    out.add("fft_type", attrs.type)
    out.ints("fft_length", attrs.length)


attrs_text(
    Opcode.CHOLESKY,
    read=lambda values: CholeskyAttrs(values.flag("lower")),
    write=lambda out, instruction: out.flag("lower", instruction.attrs_as(CholeskyAttrs).lower),
)
attrs_text(Opcode.TRIANGULAR_SOLVE, read=_read_triangular_solve, write=_write_triangular_solve)
attrs_text(Opcode.FFT, read=_read_fft, write=_write_fft)
