"""Gather arrays without their dimensions of one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from collectives.passes.all_gather_matching import gather_like, match_gathers, reshaped
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.checks import result_elements
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.shape import ArrayShape, as_array


@register_pass
@dataclass(frozen=True)
class AllGatherRemoveDegenerateDims(OpExpander):
    """Reshape operands of all-gathers to what they have besides dimensions of size 1, and results back.

        g = f32[1,8,1,3] all-gather(x), dimensions={1}     =>      s = f32[4,3] reshape(x)
                                                                   t = f32[8,3] all-gather(s), dimensions={0}
                                                                   g = f32[1,8,1,3] reshape(t)

    The gathered dimension stays whatever its size; of those before it, several operands lose the same ones.
    """

    name: ClassVar[str] = "all-gather-remove-degenerate-dims"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_GATHER,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        gather = match_gathers(x)
        if gather is None:
            return None
        d = gather.dimension
        before = [i for i in range(d) if all(operand.dims[i] == 1 for operand in x.operands)]
        retained = [_retained_dims(operand.dims, before, d) for operand in x.operands]
        if all(len(dims) == len(y.dims) for dims, y in zip(retained, x.operands, strict=True)):
            return None
        operands = [reshaped(b, y, dims) for y, dims in zip(x.operands, retained, strict=True)]
        gathered = gather_like(b, gather, operands, d - len(before))
        wanted = [as_array(shape) for shape in result_elements(x.shape)]
        if isinstance(x.shape, ArrayShape):
            return reshaped(b, gathered, wanted[0].dims)
        parts = (b.get_tuple_element(gathered, i) for i in range(len(wanted)))
        return b.tuple(
            [reshaped(b, part, shape.dims) for part, shape in zip(parts, wanted, strict=True)]
        )


def _retained_dims(dims: Sequence[int], before: Sequence[int], dimension: int) -> list[int]:
    """Return the sizes without the dimensions ``before`` and without those of size 1 after ``dimension``."""
    return [n for i, n in enumerate(dims) if i not in before and (i <= dimension or n != 1)]
