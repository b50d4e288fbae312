"""State of one simulated device, and its rendezvous with other devices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from spmd.evaluator.value import Value
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from spmd.evaluator.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Rendezvous:
    """Rendezvous: a device waits at ``instruction`` until all ``members`` wait there for the same group.

    ``combine`` takes the members' payloads in the order of ``members`` and returns each one's result in that order. It
    must not depend on the device: the one of any member is called, once. ``is_ready``: an additional condition.
    """

    instruction: HloInstruction
    members: tuple[int, ...]
    payload: Value
    combine: Callable[[Sequence[Value]], Sequence[Value]]
    is_ready: Callable[[], bool] | None = None


#: Evaluation that may wait: a generator that yields rendezvous, receives their results, and returns its value.
Steps: TypeAlias = Generator[Rendezvous, Value, Value]


@dataclass(slots=True)
class Device:
    """Device ``id`` = replica * num_partitions + partition.

    ``is_logical``: the unpartitioned evaluation, which represents all devices at once.
    """

    id: int
    num_replicas: int
    num_partitions: int
    session: Session
    is_logical: bool = False
    #: State of rng-get-and-update-state, a 128-bit counter. rng draws from it too: draws differ, runs repeat.
    rng_state: int = 0

    @property
    def replica(self) -> int:
        return self.id // self.num_partitions

    @property
    def partition(self) -> int:
        return self.id % self.num_partitions
