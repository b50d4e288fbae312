"""Write all-gathers as all-reduces."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from collectives.passes.all_gather_matching import Gather, groups_of_all, match_gathers
from collectives.passes.device_scalars import position_scalar
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.checks import result_elements
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.shape import ArrayShape, PrimitiveType, as_array

#: Unsigned type with the same number of bits as a float.
_UNSIGNED: Final = {
    4: PrimitiveType.U4,
    8: PrimitiveType.U8,
    16: PrimitiveType.U16,
    32: PrimitiveType.U32,
    64: PrimitiveType.U64,
}


@register_pass
@dataclass(frozen=True)
class AllGatherDecomposer(OpExpander):
    """Sum arrays in which each member has written its own part, instead of gathering the parts.

        g = s32[8] all-gather(x), dimensions={0}       =>      z = s32[8] broadcast(0)
                                                               u = s32[8] dynamic-update-slice(z, x, 4 * position)
                                                               g = s32[8] all-reduce(u), to_apply=sum

    Sends twice as much: for machines and combiners that know no all-gather. Every value keeps its bits: floats are
    summed as unsigned integers, complex numbers with -0.
    """

    name: ClassVar[str] = "all-gather-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_GATHER,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        gather = match_gathers(x)
        groups = groups_of_all(gather) if gather is not None else None
        if gather is None or groups is None or x.has_control_edges:
            return None
        results = [
            _summed(b, gather, groups, operand, as_array(shape))
            for operand, shape in zip(x.operands, result_elements(x.shape), strict=True)
        ]
        return results[0] if isinstance(x.shape, ArrayShape) else b.tuple(results)


def _summed(
    b: Builder, gather: Gather, groups: DeviceGroups, operand: HloInstruction, result: ArrayShape
) -> HloInstruction:
    """Write each member's ``operand`` into zeros of shape ``result``, and sum over the members."""
    kind = result.element_type
    bits = _UNSIGNED[kind.bits] if kind.is_floating else kind
    own = _with_type(b, operand, bits)
    rows = operand.dims[gather.dimension]
    starts = [b.scalar(PrimitiveType.S32, 0)] * len(result.dims)
    starts[gather.dimension] = position_scalar(b, groups, times=rows)
    nothing = b.full(ArrayShape(bits, result.dims), complex(-0.0, -0.0) if bits.is_complex else 0)
    total = _all_reduce(b, gather, b.dynamic_update_slice(nothing, own, starts))
    return _with_type(b, total, kind)


def _with_type(b: Builder, x: HloInstruction, kind: PrimitiveType) -> HloInstruction:
    if x.array_shape.element_type is kind:
        return x
    return b.create(Opcode.BITCAST_CONVERT, (x,), shape=ArrayShape(kind, x.dims))


def _all_reduce(b: Builder, gather: Gather, x: HloInstruction) -> HloInstruction:
    """Return the sum of ``x`` over the members of ``gather``, with a new channel id."""
    attrs = gather.instruction.attrs_as(CollectiveAttrs)
    channel = b.scope.channel_id() if attrs.channel_id is not None else None
    reducer = b.scope.reducer(ReductionKind.SUM, x.array_shape.element_type)
    return b.create(
        Opcode.ALL_REDUCE,
        (x,),
        replace(attrs, dimension=None, channel_id=channel),
        calls=(reducer,),
    )
