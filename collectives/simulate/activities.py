"""Activities: the sequential steps of a device's program, to which the simulator converts a scheduled module.

All devices run the same activities, but their speeds may differ: a traced run has the times of each device. An activity
therefore holds seconds for each *pace*, the index of one of the estimators of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from collectives.cost.estimator import CollectiveTime
from collectives.schedule.phases import is_blocking
from spmd.analysis.wire import result_bytes
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import wrapped
from spmd.lazy_dataclass import dataclass

#: Seconds of each execution in a step, by instruction name, for instructions whose executions were timed separately.
Series: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Work:
    """An activity in which the device computes: one kernel, or all trips of a loop without collectives.

    ``seconds`` holds its time at each pace.
    """

    name: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """An activity in which the device becomes ready for collective number ``site`` and continues."""

    site: int


@dataclass(frozen=True, slots=True)
class Wait:
    """An activity in which the device waits for the end of the last started execution of collective number ``site``."""

    site: int


@dataclass(frozen=True, slots=True)
class Loop:
    """``trips`` executions of ``body``, which contains collectives and, at its end, the work of the loop's condition.

    A call or a branch is a loop of one trip. All calls of a computation share one ``body`` object.
    """

    name: str
    trips: int
    body: Activities


Activity: TypeAlias = Work | Start | Wait | Loop
Activities: TypeAlias = tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A collective of the program, or a copy between host and device: a synchronous one, or the start of an
    asynchronous one.

    times: by pace, the times if all members start together on links that nothing else uses.
    """

    instruction: HloInstruction
    times: tuple[CollectiveTime, ...]

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def operation(self) -> HloInstruction:
        """Return the collective, unwrapped from its async-start if there is one."""
        return wrapped(self.instruction)

    @property
    def kind(self) -> str:
        """Return the opcode of the collective's synchronous form, as a text; "copy" for a copy."""
        return KIND.get(self.operation.opcode, "copy")

    @property
    def bytes(self) -> int:
        """Return the size in bytes of the result on one device."""
        return result_bytes(self.operation)

    @property
    def is_blocking(self) -> bool:
        """Return whether the collective or copy is synchronous."""
        return is_blocking(self.instruction) or self.instruction.opcode is Opcode.COPY

    @property
    def is_copy(self) -> bool:
        """Return whether it is a copy between host and device, in which no other device takes part."""
        return self.operation.opcode not in KIND


@dataclass(frozen=True, slots=True)
class Program:
    """Activities of a program, and its collectives by number (``sites``).

    branches: the branch that each conditional is assumed to take.
    notes: other assumptions, as sentences.
    """

    activities: Activities
    sites: tuple[Site, ...]
    branches: Mapping[HloInstruction, HloComputation]
    notes: tuple[str, ...]
