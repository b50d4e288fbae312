"""Write all-to-alls of one array as all-to-alls of one operand for each member, or the other way round."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_size
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import UNSCHEDULED, register_pass


@register_pass
@dataclass(frozen=True)
class AllToAllDecomposer(OpExpander):
    """Cut what is exchanged into one operand for each member, or with ``to_arrays`` put these into one array.

    r = f32[4,3] all-to-all(x), dimensions={0}     =>      s = (f32[2,3], f32[2,3]) all-to-all(x[0:2], x[2:4])
                                                           r = f32[4,3] concatenate(s.0, s.1), dimensions={0}

    s = (f32[3], f32[3]) all-to-all(x, y)          =>      r = f32[2,3] all-to-all({x, y}), dimensions={0}
                                                           s = (r[0], r[1])
    """

    name: ClassVar[str] = "all-to-all-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_TO_ALL,)
    to_arrays: bool = False

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        attrs, members = x.attrs_as(CollectiveAttrs), group_size(x)
        if attrs.constrain_layout or x.has_control_edges or members is None:
            return None
        if attrs.dimension is None:
            return _of_array(x, b) if self.to_arrays else None
        if self.to_arrays or x.num_operands != 1:
            return None
        return _of_operands(x, attrs.dimension, members, b)


def _of_operands(x: HloInstruction, dimension: int, members: int, b: Builder) -> HloInstruction:
    rows = x.dims[dimension] // members
    operands = [_cut(b, x.operand(0), dimension, i * rows, (i + 1) * rows) for i in range(members)]
    attrs = replace(x.attrs_as(CollectiveAttrs), dimension=None)
    exchanged = b.create(Opcode.ALL_TO_ALL, operands, attrs)
    exchanged.annotations = x.annotations
    received = [b.get_tuple_element(exchanged, i) for i in range(members)]
    return b.concatenate(received, dimension)


def _of_array(x: HloInstruction, b: Builder) -> HloInstruction:
    dims = x.operand(0).dims
    stacked = b.concatenate([b.reshape(part, (1, *dims)) for part in x.operands], 0)
    attrs = replace(x.attrs_as(CollectiveAttrs), dimension=0)
    exchanged = b.create(Opcode.ALL_TO_ALL, (stacked,), attrs, shape=stacked.shape)
    exchanged.annotations = x.annotations
    return b.tuple(
        [b.reshape(_cut(b, exchanged, 0, i, i + 1), dims) for i in range(x.num_operands)]
    )


def _cut(b: Builder, x: HloInstruction, dimension: int, start: int, limit: int) -> HloInstruction:
    starts, limits = [0] * len(x.dims), list(x.dims)
    starts[dimension], limits[dimension] = start, limit
    return b.slice(x, starts, limits)
