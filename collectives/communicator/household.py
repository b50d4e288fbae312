"""What the ranks of one node share when one of them, the host, runs the steps of all.

Ranks that have to share cores wait for each other at every meeting of a step, and each wait costs a change of process.
Where all memory of the ranks is mapped by all, one of them can run everyone's devices, which costs none; the others,
its guests, bring their inputs, sleep until the step is over, and find their outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectives.communicator.gate import Gate
from collectives.communicator.kinds import Group
from collectives.communicator.reduction import Array


@dataclass(frozen=True)
class Household:
    """One rank's view. ``gate``: all come to each step; the host keeps it.

    ``seen``: (rank, own memory) -> what lies at the same place of that rank's segment. ``position_of``: that rank's
    words for where it is in its program. ``pass_gate``: come to the next step and wait: the host until all have come,
    its guests until it is over; CollectiveTimeoutError where there is no hope.
    """

    ranks: Group
    rank: int
    gate: Gate
    seen: Callable[[int, Array], Array]
    position_of: Callable[[int], memoryview]
    pass_gate: Callable[[], None]

    @property
    def is_host(self) -> bool:
        return self.gate.keeper == self.rank
