"""Interface of engines, which run barriers and the actions of ``shared_actions`` as native code.

Communicators receive an engine from their creator; ``runtime/cpu/collective/collective_engine.py`` defines one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from collectives.communicator.actions.shared_actions import CollectiveProgram
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BarrierRecord:
    """One member's part in a barrier of ``members`` members.

    own, come and opened are addresses of 64-bit words in this process. own: the number of this member's arrivals. come:
    the number of arrivals of all members. opened: the number of the last passage that is over; the last member to
    arrive sets it. spin_limit: polls of ``opened`` before the member sleeps.
    """

    members: int
    own: int
    come: int
    opened: int
    spin_limit: int


class LoadedBarrier(Protocol):
    """A barrier in native code, for one member."""

    @property
    def number(self) -> int:
        """Return the number of the last passage that this member has entered, from 1; 0 before the first."""
        ...

    def enter(self) -> int:
        """Enter the next passage and wait as ``wait`` does. Returns 0 if all members have entered it."""
        ...

    def wait(self) -> int:
        """Wait for the other members until a timeout or a signal. Returns 0 if all have entered the passage."""
        ...


class BarrierEngine(Protocol):
    """Engine that runs barriers as native code."""

    def node_barrier(self, record: BarrierRecord) -> LoadedBarrier:
        """Return the barrier of ``record`` for its member."""
        ...


class RunStatus(IntEnum):
    """Status of a collective's run after a call of native code."""

    COMPLETE = 0
    BLOCKED = 1  # a member is late: call again to continue
    MISUSED = 2  # started while a run is in flight, or before ``connect``
    OUT_OF_BOUNDS = 3  # offsets and sizes in operands exceed an array
    MESSAGES_FAILED = 4  # the message library has reported an error


class LoadedCollective(Protocol):
    """A collective program that is ready to run any number of times."""

    @property
    def address(self) -> int:
        """Return the address by which native code starts the program without a call of Python."""
        ...

    @property
    def run(self) -> int:
        """Return a number that grows from run to run if the program has signals."""
        ...

    def start(self) -> int:
        """Begin a run and advance it as far as possible without waiting. Returns a RunStatus."""
        ...

    def advancing(self, spins: int) -> Callable[[], int]:
        """Return a function that advances the current run and returns a RunStatus.

        At a wait the function polls up to ``spins`` times before it returns BLOCKED.
        """
        ...

    def missing(self) -> list[int]:
        """Return the ranks that have not yet given the signal, or completed the messages, for which the run waits.

        The list is empty if the run does not wait.
        """
        ...

    def failure(self) -> str:
        """Return the error text of the message library. The status of the run must be MESSAGES_FAILED."""
        ...


class CollectiveEngine(BarrierEngine, Protocol):
    """Engine that runs collectives and barriers as native code."""

    def can_reduce(self, dtype: np.dtype[Any], reduction: ReductionKind) -> bool:
        """Return whether the engine reduces values of ``dtype`` with the same bits as ``reduce_in_order``."""
        ...

    def load(self, programs: Sequence[CollectiveProgram]) -> Sequence[LoadedCollective]:
        """Return each of ``programs`` ready to run.

        The memory that the programs address must outlive the loaded programs; the engine does not own it.
        """
        ...
