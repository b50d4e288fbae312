"""Interface of engines: what runs actions (``shared_actions``) and barriers as native code.

An engine is given to the communicator; ``runtime/cpu/collective/collective_engine.py`` is one.
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
    """One member's part in a barrier, as addresses of 64-bit words in this process.

    own: this member's arrivals. come: the arrivals of all members. opened: number of the last passage that is over; the
    last member to arrive sets it. spin_limit: polls of ``opened`` before the member sleeps.
    """

    members: int
    own: int
    come: int
    opened: int
    spin_limit: int


class LoadedBarrier(Protocol):
    """Native code for one member."""

    @property
    def number(self) -> int:
        """The number of the last passage that has begun."""
        ...

    def enter(self) -> int:
        """Come to the next passage, and wait: 0 when it is over."""
        ...

    def wait(self) -> int:
        """Wait again, for a while or until a signal comes: 0 when it is over."""
        ...


class BarrierEngine(Protocol):
    """Engine that makes native code for a barrier's words."""

    def node_barrier(self, record: BarrierRecord) -> LoadedBarrier: ...


class RunStatus(IntEnum):
    """Status of a program after a call."""

    COMPLETE = 0
    BLOCKED = 1  # a member has not come yet: call again
    MISUSED = 2  # started while it runs, or before it was connected
    OUT_OF_BOUNDS = 3  # tables in the data point outside of an array
    MESSAGES_FAILED = 4  # the library that carries messages has reported an error


class LoadedCollective(Protocol):
    """A program ready to be run, any number of times."""

    @property
    def address(self) -> int:
        """The address by which native code starts the program without a call of Python."""
        ...

    @property
    def run(self) -> int:
        """A number that differs from run to run."""
        ...

    def start(self) -> int:
        """Begin a run and go as far as possible without waiting. A RunStatus."""
        ...

    def advancing(self, spins: int) -> Callable[[], int]:
        """Return a function that continues a run: at a wait it polls the counters up to ``spins`` times. It returns a
        RunStatus."""
        ...

    def missing(self) -> list[int]:
        """The ranks that a blocked program waits for."""
        ...

    def failure(self) -> str:
        """Return the error text of the library that carries messages, if that has failed."""
        ...


class CollectiveEngine(BarrierEngine, Protocol):
    """Engine that runs actions and barriers."""

    def can_reduce(self, dtype: np.dtype[Any], reduction: ReductionKind) -> bool:
        """Return whether ReduceRows of this type and kind can be run with the bits of ``reduce_in_order``."""
        ...

    def load(self, programs: Sequence[CollectiveProgram]) -> Sequence[LoadedCollective]:
        """Prepare programs; the memory they address must live as long as they are used."""
        ...
