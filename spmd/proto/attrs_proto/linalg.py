"""cholesky, triangular-solve, fft."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CholeskyAttrs, FftAttrs, TriangularSolveAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.enums import FFT_TYPES, TRANSPOSES
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import CholeskyOptionsProto, TriangularSolveOptionsProto


def _read_cholesky(values: ProtoValues) -> CholeskyAttrs:
    options = values.proto.cholesky_options
    return CholeskyAttrs() if options is None else CholeskyAttrs(options.lower)


def _write_cholesky(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    options = CholeskyOptionsProto()
    options.lower = instruction.attrs_as(CholeskyAttrs).lower
    proto.cholesky_options = options


def _read_triangular_solve(values: ProtoValues) -> TriangularSolveAttrs:
    options = values.proto.triangular_solve_options
    if options is None:
        return TriangularSolveAttrs()
    return TriangularSolveAttrs(
        options.left_side,
        options.lower,
        options.unit_diagonal,
        TRANSPOSES.value(options.transpose_a),
    )


def _write_triangular_solve(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(TriangularSolveAttrs)
    options = TriangularSolveOptionsProto()
    options.left_side = attrs.left_side
    options.lower = attrs.lower
    options.unit_diagonal = attrs.unit_diagonal
    options.transpose_a = TRANSPOSES.number(attrs.transpose_a)
    proto.triangular_solve_options = options


def _read_fft(values: ProtoValues) -> FftAttrs:
    return FftAttrs(FFT_TYPES.value(values.proto.fft_type), values.proto.fft_length)


def _write_fft(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FftAttrs)
    proto.fft_type = FFT_TYPES.number(attrs.type)
    proto.fft_length = attrs.length


attrs_proto(Opcode.CHOLESKY, read=_read_cholesky, write=_write_cholesky)
attrs_proto(Opcode.TRIANGULAR_SOLVE, read=_read_triangular_solve, write=_write_triangular_solve)
attrs_proto(Opcode.FFT, read=_read_fft, write=_write_fft)
