"""Op priorities of propagation: the level and the direction in which an op passes sharding axes.

Levels run one after the other, each to its fixpoint. A sharding thus follows a value through all ops that keep it,
before it crosses an op that mixes dimensions:

    level   what joins
    0       ops that keep every dimension, both ways; slices of a value, forwards
    1       the pass-through factors of all other ops; broadcasts backwards only
    2       everything: reduction factors, those that need replication, broadcasts forwards

The levels are Shardy's (its documentation, "Operation based priorities").
"""

from __future__ import annotations

from enum import Enum

from partitioner.propagation.op_sharding_rule import FactorKind


class Direction(Enum):
    """Direction of propagation. FORWARD: from operands to results; BACKWARD: from results to operands; BOTH: between
    any two tensors of an op.
    """

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3

    def meet(self, other: Direction) -> Direction:
        """Return the directions that both allow."""
        return Direction(self.value & other.value)


class OpPriority(Enum):
    """Propagation priority of an op; ops of higher priority propagate first."""

    KEEPS_VALUE = "keeps value"
    SLICES = "slices"
    ORDINARY = "ordinary"
    BROADCASTS = "broadcasts"


LEVELS = 3
LAST_LEVEL = LEVELS - 1

#: Direction of an op's pass-through factors at each level.
_SCHEDULE = {
    OpPriority.KEEPS_VALUE: (Direction.BOTH, Direction.BOTH, Direction.BOTH),
    OpPriority.SLICES: (Direction.FORWARD, Direction.BOTH, Direction.BOTH),
    OpPriority.ORDINARY: (Direction.NONE, Direction.BOTH, Direction.BOTH),
    OpPriority.BROADCASTS: (Direction.NONE, Direction.BACKWARD, Direction.BOTH),
}


#: Direction of reduction factors and of factors needing replication (neighbours may have them split): last level only.
_OTHERS = (Direction.NONE, Direction.NONE, Direction.BOTH)


def directions(priority: OpPriority, kind: FactorKind) -> tuple[Direction, ...]:
    """Return the directions in which axes of a factor propagate at each level."""
    return _SCHEDULE[priority] if kind is FactorKind.PASS_THROUGH else _OTHERS
