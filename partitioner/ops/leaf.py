"""Operations without operands: any split of the result is free.

    iota      -> [i, j]     each device counts from its own offset
    constant  -> [i, j]     equal elements: a local broadcast; others: sliced out of the whole
"""

from __future__ import annotations

from partitioner.ops.elementwise import all_dimensions_pass
from partitioner.registry import sharding_rule
from partitioner.rule import OpShardingRule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode


@sharding_rule(Opcode.IOTA, Opcode.CONSTANT)
def leaf_rule(leaf: HloInstruction) -> OpShardingRule | None:
    """Each dimension has a factor of its own."""
    return all_dimensions_pass(leaf)
