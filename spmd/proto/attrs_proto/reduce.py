"""reduce, map, reduce-window, select-and-scatter, scan, batch norms."""

from __future__ import annotations

import numpy as np

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import BatchNormAttrs, ScanAttrs, WindowAttrs
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.attrs_proto.reshape import read_dimensions, single_dimension, write_dimensions
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.window_proto import read_window, write_window

_TRUE, _FALSE = 1, 2


def _write_window(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.window = write_window(instruction.attrs_as(WindowAttrs).window)


def _read_scan(values: ProtoValues) -> ScanAttrs:
    proto = values.proto
    return ScanAttrs(
        single_dimension(values),
        proto.num_carries,
        proto.is_reverse,
        proto.is_associative == _TRUE,
    )


def _write_scan(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ScanAttrs)
    proto.dimensions = (attrs.dimension,)
    proto.num_carries = attrs.num_carries
    proto.is_reverse = attrs.is_reverse
    proto.is_associative = _TRUE if attrs.is_associative else _FALSE


def _read_batch_norm(values: ProtoValues) -> BatchNormAttrs:
    """Read the attributes. Epsilon becomes the shortest decimal that is the same f32, as in a text."""
    epsilon = float(str(np.float32(values.proto.epsilon)))
    return BatchNormAttrs(epsilon, values.proto.feature_index)


def _write_batch_norm(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(BatchNormAttrs)
    proto.epsilon = attrs.epsilon
    proto.feature_index = attrs.feature_index


attrs_proto(Opcode.REDUCE, Opcode.MAP, read=read_dimensions, write=write_dimensions, callees=1)
attrs_proto(
    Opcode.REDUCE_WINDOW,
    read=lambda values: WindowAttrs(read_window(values.proto.window)),
    write=_write_window,
    callees=1,
)
attrs_proto(
    Opcode.SELECT_AND_SCATTER,
    read=lambda values: WindowAttrs(read_window(values.proto.window)),
    write=_write_window,
    callees=2,
)
attrs_proto(Opcode.SCAN, read=_read_scan, write=_write_scan, callees=1)
attrs_proto(
    Opcode.BATCH_NORM_GRAD,
    Opcode.BATCH_NORM_INFERENCE,
    Opcode.BATCH_NORM_TRAINING,
    read=_read_batch_norm,
    write=_write_batch_norm,
)
