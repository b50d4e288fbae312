"""Gathers that are slices, or whose operand need not be computed entirely."""

from __future__ import annotations

from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import GatherAttrs
from spmd.passes.algebraic.match import constant_array, splat
from spmd.passes.gathered_values import gather_of_gather, gather_of_iota
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at


@register_pass
@dataclass(frozen=True)
class GatherSimplifier(Simplifier):
    """gather(x, {{2, 3}})  =>  reshape(slice(x)), for one constant index vector, clamped as the gather does
    gather(gather(x, i), j)  =>  gather(x, gather(i, j))
    gather(iota, i)  =>  i, clamped

    Slices are views: no data moves.
    """

    name: ClassVar[str] = "gather-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.GATHER,)
    makes_values: ClassVar[bool] = True

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def simpler(x: HloInstruction) -> HloInstruction | None:
            if not x.array_shape.num_elements:
                return None
            b = builder_at(x, scope)
            return one_slice(x, b) or gather_of_iota(x, b) or gather_of_gather(x, b)

        return simpler


def one_slice(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """Return the slice that equals a gather with one constant index vector; None for other gathers."""
    attrs, (operand, indices) = x.attrs_as(GatherAttrs), x.operands
    if indices.array_shape.num_elements != len(attrs.start_index_map):
        return None
    vector = _constants(indices)
    if not vector:
        return None
    starts = [0] * len(operand.dims)
    for d, start in zip(attrs.start_index_map, vector, strict=True):
        starts[d] = min(max(start, 0), operand.dims[d] - attrs.slice_sizes[d])
    limits = [start + size for start, size in zip(starts, attrs.slice_sizes, strict=True)]
    return b.reshape(b.slice(operand, starts, limits), x.dims)


def _constants(indices: HloInstruction) -> list[int]:
    """Return the constant indices in row-major order; an empty list if they are not constant."""
    if indices.opcode is Opcode.BROADCAST and (one := splat(indices)) is not None:
        return [int(one)] * indices.array_shape.num_elements
    array = constant_array(indices)
    return [int(i) for i in array.reshape(-1)] if array is not None else []
