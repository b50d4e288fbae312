"""A reduce-scatter as an all-reduce of which each device keeps its part."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from collectives.passes.combining import replace_by_parts, result_shapes
from collectives.passes.device_scalars import device_count, position_scalar
from collectives.passes.reducing import reducing
from spmd.builder import Builder, ModuleScope
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import as_array


@register_pass
@dataclass(frozen=True)
class ReduceScatterDecomposer(InstructionPass):
    """part = f32[2] reduce-scatter(x), dimensions={0}  =>  sum = f32[8] all-reduce(x)
                                                            part = f32[2] dynamic-slice(sum, 2 * position in the group)

    For back ends without a reduce-scatter, and for small arrays, of which an all-reduce takes one message and a
    reduce-scatter one for each member. About twice as many bytes are sent. Every result keeps its bits.
    """

    name: ClassVar[str] = "reduce-scatter-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.REDUCE_SCATTER,)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            what = reducing(x)
            if what is None or not what.groups.covers(device_count(module)):
                return False
            b = builder_at(x, scope)
            replace_by_parts(x, decomposed(x, what.groups, b), b)
            return True

        return edit


def decomposed(x: HloInstruction, groups: DeviceGroups, b: Builder) -> list[HloInstruction]:
    """Return the results of the reduce-scatter ``x``, as slices of the results of an all-reduce."""
    attrs = x.attrs_as(CollectiveAttrs)
    assert attrs.dimension is not None
    all_reduce = b.create(
        Opcode.ALL_REDUCE, x.operands, replace(attrs, dimension=None), calls=x.called_computations
    )
    all_reduce.annotations = x.annotations
    several = x.num_operands > 1
    totals = (
        [b.get_tuple_element(all_reduce, i) for i in range(x.num_operands)]
        if several
        else [all_reduce]
    )
    zero = None
    parts = []
    for total, shape in zip(totals, result_shapes(x), strict=True):
        sizes = as_array(shape).dims
        start = position_scalar(b, groups, times=sizes[attrs.dimension])
        zero = zero or b.scalar_like(start, 0)
        at = [start if d == attrs.dimension else zero for d in range(len(sizes))]
        parts.append(b.dynamic_slice(total, at, sizes))
    return parts
