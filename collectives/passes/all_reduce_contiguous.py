"""An all-reduce of many arrays becomes one of a single array that holds them all."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import ClassVar

from collectives.passes.combining import replace_by_parts
from collectives.passes.reducing import reducing
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at


@register_pass
@dataclass(frozen=True)
class AllReduceContiguous(InstructionPass):
    """(a, b) = all-reduce(x, y)    =>    both = all-reduce(concatenate(reshape(x), reshape(y))); a, b = its slices

    For back ends that send one buffer at less cost than several, which must outweigh the copies on both sides. Every
    result keeps its bits.
    """

    name: ClassVar[str] = "all-reduce-contiguous"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.ALL_REDUCE,)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            if x.num_operands < 2 or reducing(x) is None:
                return False
            b = builder_at(x, scope)
            replace_by_parts(x, flattened(x, b), b)
            return True

        return edit


def flattened(x: HloInstruction, b: Builder) -> list[HloInstruction]:
    """Return the results of the all-reduce ``x``, as slices of the result of an all-reduce of one array."""
    sizes = [math.prod(operand.dims) for operand in x.operands]
    flat = [b.reshape(o, (size,)) for o, size in zip(x.operands, sizes, strict=True)]
    joined = b.concatenate(flat, 0)
    total = b.computation.add(x.clone(joined.shape, (joined,)))
    ends = list(accumulate(sizes))
    parts = [b.slice(total, (end - n,), (end,)) for n, end in zip(sizes, ends, strict=True)]
    return [b.reshape(p, o.dims) for p, o in zip(parts, x.operands, strict=True)]
