"""Activities: what a device does one after the other, as the simulator sees a scheduled module.

Devices may differ in how fast they are (a traced run tells each one's times), not in what they do: an activity holds
seconds for each *pace*, one of the estimators that the program was made with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from collectives.cost.estimator import CollectiveTime
from collectives.schedule.phases import is_blocking
from spmd.analysis.wire import result_bytes
from spmd.hlo import HloComputation, HloInstruction
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import wrapped
from spmd.lazy_dataclass import dataclass

#: Seconds of each execution of instructions in a step, by name, where they are known one by one.
Series: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Work:
    """An activity in which the device computes: one kernel, or all trips of a loop without collectives. ``seconds``: by
    pace.
    """

    name: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The device is ready for collective number ``site`` and goes on."""

    site: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The device waits until the last started execution of collective number ``site`` is over."""

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
    """A collective of the program: a synchronous one, or the start of an asynchronous one.

    times: by pace, the times if all members start together on links that nothing else uses.
    """

    instruction: HloInstruction
    times: tuple[CollectiveTime, ...]

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def operation(self) -> HloInstruction:
        """The collective itself, which an async-start wraps."""
        return wrapped(self.instruction)

    @property
    def kind(self) -> str:
        """The kind of its synchronous form."""
        return KIND[self.operation.opcode]

    @property
    def bytes(self) -> int:
        """The bytes of its result on one device."""
        return result_bytes(self.operation)

    @property
    def is_blocking(self) -> bool:
        return is_blocking(self.instruction)


@dataclass(frozen=True, slots=True)
class Program:
    """Activities of a program.

    branches: the branch that each conditional is assumed to take.
    notes: other assumptions, as sentences.
    """

    activities: Activities
    sites: tuple[Site, ...]
    branches: Mapping[HloInstruction, HloComputation]
    notes: tuple[str, ...]
