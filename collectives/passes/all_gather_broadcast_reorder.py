"""Gather first, broadcast or convert then: what these add is not sent."""

from __future__ import annotations

from typing import ClassVar

from collectives.passes.all_gather_matching import Gather, gather_like, match_gather
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs
from spmd.passes.algebraic.match import splat
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class AllGatherBroadcastReorder(OpExpander):
    """Gather the operand of a broadcast and then broadcast it, if that is smaller.

        x = f32[8] ...                                             g = f32[16] all-gather(x), dimensions={0}
        b = f32[8,4] broadcast(x), dimensions={0}          =>      r = f32[16,4] broadcast(g), dimensions={0}
        g = f32[16,4] all-gather(b), dimensions={0}

    If the gathered dimension is one that the broadcast adds, the members lie along a new dimension of ``x``.
    Conversions to a larger type are moved in the same way. A constant that is equal everywhere is not gathered at all.
    """

    name: ClassVar[str] = "all-gather-broadcast-reorder"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_GATHER,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        gather = match_gather(x)
        if gather is None or x.has_control_edges:
            return None
        value = splat(gather.operand)
        if value is not None:
            return b.full(x.array_shape.without_layout(), value)
        if gather.operand.opcode not in (Opcode.BROADCAST, Opcode.CONVERT):
            return None
        source = gather.operand.operand(0)
        if source.shape.byte_size >= gather.operand.shape.byte_size:
            return None
        if gather.operand.opcode is Opcode.CONVERT:
            gathered = gather_like(b, gather, source, gather.dimension)
            return b.convert(gathered, x.array_shape.element_type)
        dims = gather.operand.attrs_as(DimensionsAttrs).dimensions
        if gather.dimension in dims:
            gathered = gather_like(b, gather, source, dims.index(gather.dimension))
            return b.broadcast(gathered, dims, x.dims)
        return _along_new_dimension(b, gather, source, dims)


def _along_new_dimension(
    b: Builder, gather: Gather, source: HloInstruction, dims: tuple[int, ...]
) -> HloInstruction:
    """Gather the sources along a new dimension 0, then broadcast along ``gather.dimension`` and reshape to the gather's
    sizes.

    f32[5] x to [6,5], 2 members along 0:  f32[2,5] gathered, f32[2,6,5] broadcast, f32[12,5] reshape
    """
    gathered = gather_like(b, gather, b.reshape(source, (1, *source.dims)), 0)
    d = gather.dimension
    part = gather.operand.dims
    split = (*part[:d], gather.count, *part[d:])
    placed = (d, *(i + (i >= d) for i in dims))
    return b.reshape(b.broadcast(gathered, placed, split), gather.instruction.dims)
