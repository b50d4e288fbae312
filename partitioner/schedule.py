"""When an op passes sharding axes on, and which way: the op priorities of propagation.

Levels run one after the other, each to its fixpoint, so that a sharding follows a value as far as the value itself goes
before it crosses an op that mixes dimensions:

    level   what joins
    0       ops that keep every dimension, both ways; slices of a value, forwards
    1       the pass-through factors of all other ops; broadcasts backwards only
    2       everything: reduction factors, broadcasts forwards

The levels are Shardy's (its documentation, "Operation based priorities").
"""

from __future__ import annotations

from enum import Enum

from partitioner.rule import FactorKind


class Direction(Enum):
    """FORWARD: from operands to results; BACKWARD: from results to operands; BOTH: between any two tensors of an op."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3

    def meet(self, other: Direction) -> Direction:
        """What both allow."""
        return Direction(self.value & other.value)


class OpPriority(Enum):
    """How early an op takes part."""

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


def direction_at(priority: OpPriority, kind: FactorKind, level: int) -> Direction:
    """Which way axes of a factor pass at ``level``; reductions wait for the last one."""
    if kind is FactorKind.NEED_REPLICATION:
        return Direction.NONE
    if kind is FactorKind.REDUCTION and level < LAST_LEVEL:
        return Direction.NONE
    return _SCHEDULE[priority][level]
