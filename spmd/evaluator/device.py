"""State of one simulated device, and its rendezvous with others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from spmd.evaluator.value import Value
from spmd.hlo.instruction import HloInstruction

if TYPE_CHECKING:
    from spmd.evaluator.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """A device waits at ``instruction`` until all ``members`` wait there for the same group.

    ``combine`` takes the members' payloads in the order of ``members`` and returns each one's result in that order.
    It must not depend on the device that brings it: any member's is called, once. ``is_ready``: what else must be true.
    """

    instruction: HloInstruction
    members: tuple[int, ...]
    payload: Value
    combine: Callable[[Sequence[Value]], Sequence[Value]]
    is_ready: Callable[[], bool] | None = None


#: An evaluation that may wait: it yields meetings, is sent their results, and returns its value.
Steps: TypeAlias = Generator[Meeting, Value, Value]


@dataclass(slots=True)
class Device:
    """Device ``id`` = replica * num_partitions + partition.

    ``is_logical``: not one of the program's devices but the whole of them: the unpartitioned evaluation.
    """

    id: int
    num_replicas: int
    num_partitions: int
    session: Session
    is_logical: bool = False
    #: State of rng-get-and-update-state, a 128-bit counter, from which rng draws, too: draws differ, runs repeat.
    rng_state: int = 0

    @property
    def replica(self) -> int:
        return self.id // self.num_partitions

    @property
    def partition(self) -> int:
        return self.id % self.num_partitions
