"""Write maps as the elementwise operations of their functions."""

from __future__ import annotations

from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.scalar_function import is_elementwise
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.passes.on_arrays import on_arrays


@register_pass
@dataclass(frozen=True)
class MapInliner(OpExpander):
    """map(x, y), to_apply=f  =>  f's operations on the arrays x and y, its constants repeated

    where f consists of elementwise operations (on scalars) and constants. Functions with maps in them open from within.
    """

    name: ClassVar[str] = "map-inliner"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.MAP,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        function = x.to_apply.post_order()
        if not is_elementwise(function):
            return None
        arrays = dict(zip(x.to_apply.parameters, x.operands, strict=True))
        inlined = on_arrays(function, arrays, b)[x.to_apply.root]
        return b.copy(inlined) if inlined in x.operands else inlined
