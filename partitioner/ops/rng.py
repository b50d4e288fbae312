"""Random numbers: every device computes all of them, so that the results equal those of the unpartitioned program;
users slice.

    rng-bit-generator  state [s]  -> state [s], bits [i, j]     bits depend on their position in the global array

The state advances equally on every device.
"""

from __future__ import annotations

from partitioner.propagation.op_sharding_rule import OpShardingRule
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode


@sharding_rule(Opcode.RNG, Opcode.RNG_BIT_GENERATOR, Opcode.RNG_GET_AND_UPDATE_STATE)
def rng_rule(_: HloInstruction) -> OpShardingRule | None:
    return None
