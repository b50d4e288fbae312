"""reshape, transpose, broadcast, reverse, bitcast, dimension sizes."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, ReshapeAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def read_dimensions(values: AttrValues) -> DimensionsAttrs:
    return DimensionsAttrs(values.need_ints("dimensions"))


def write_dimensions(out: AttrWriter, instruction: HloInstruction) -> None:
    out.ints("dimensions", instruction.attrs_as(DimensionsAttrs).dimensions)


def _write_reshape(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs
    if isinstance(attrs, ReshapeAttrs) and attrs.inferred_dimension >= 0:
        out.add("inferred_dimension", attrs.inferred_dimension)


attrs_text(
    Opcode.BROADCAST,
    read=lambda values: DimensionsAttrs(values.ints("dimensions")),
    write=write_dimensions,
)
attrs_text(
    Opcode.TRANSPOSE,
    Opcode.REVERSE,
    Opcode.GET_DIMENSION_SIZE,
    Opcode.SET_DIMENSION_SIZE,
    read=read_dimensions,
    write=write_dimensions,
)
attrs_text(
    Opcode.RESHAPE,
    read=lambda values: ReshapeAttrs(values.integer("inferred_dimension", -1)),
    write=_write_reshape,
)
attrs_text(Opcode.BITCAST, Opcode.DYNAMIC_RESHAPE)
