"""Write maps as the elementwise operations of their functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.ops import definition
from spmd.ops.attrs import ParameterAttrs
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.rewrite import has_control_edges
from spmd.shape import ArrayShape


@register_pass
@dataclass(frozen=True)
class MapInliner(OpExpander):
    """map(x, y), to_apply=f  =>  f's operations on the arrays x and y, its constants repeated

    where f consists of elementwise operations (on scalars) and constants. Functions with maps in them open from within.
    """

    name: ClassVar[str] = "map-inliner"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.MAP,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        if not is_elementwise(x.to_apply):
            return None
        inlined = _on_arrays(x, b)
        return b.copy(inlined) if inlined in x.operands else inlined


def is_elementwise(function: HloComputation) -> bool:
    """It does to each element of arrays what it does to scalars."""
    return all(
        x.opcode in (Opcode.PARAMETER, Opcode.CONSTANT)
        or (definition(x.opcode).elementwise and not x.called_computations)
        for x in function.instructions
    ) and not any(map(has_control_edges, function.instructions))


def _on_arrays(x: HloInstruction, b: Builder) -> HloInstruction:
    arrays: dict[HloInstruction, HloInstruction] = {}
    for y in x.to_apply.post_order():
        if y.opcode is Opcode.PARAMETER:
            arrays[y] = x.operand(y.attrs_as(ParameterAttrs).number)
        elif y.opcode is Opcode.CONSTANT:
            arrays[y] = b.broadcast_scalar(b.computation.add(y.clone(y.shape, ())), x.dims)
        else:
            shape = ArrayShape(y.array_shape.element_type, x.dims)
            copy = y.clone(shape, [arrays[operand] for operand in y.operands])
            if not copy.annotations.metadata:
                copy.annotations = b.annotations
            arrays[y] = b.computation.add(copy)
    return arrays[x.to_apply.root]
