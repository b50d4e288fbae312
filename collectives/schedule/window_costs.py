"""Costs of instructions on a device: seconds of work, transfers of collectives, and the resources that they occupy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from collectives.cost.estimator import CollectiveTime, Estimator
from collectives.schedule.group_overlap import GroupClass, GroupOverlap
from collectives.schedule.links import Links, QueuedLinks, SharedLinks, Transfer
from collectives.schedule.phases import is_blocking, is_done, is_start
from spmd.analysis.executions import summed_over_callees
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Communication:
    """Resources that a collective, or all those of a caller, occupy while they are in flight."""

    groups: frozenset[GroupClass] = frozenset()
    exchanges: frozenset[str] = frozenset()

    def __or__(self, other: Communication) -> Communication:
        return Communication(self.groups | other.groups, self.exchanges | other.exchanges)

    def __bool__(self) -> bool:
        return bool(self.groups)


@dataclass
class WindowCosts:
    """Costs of a module's instructions, each estimated once. A caller costs as much as its callees' schedules.

    busy: by exchange, the fraction of the device that a transfer takes away from work.
    shares: transfers on an exchange may run concurrently and need not queue.
    totals[c]: seconds of computation c with its schedule; its scheduler sets them, callees first.
    """

    estimator: Estimator
    group_overlap: GroupOverlap
    busy: Mapping[str, float] = field(default_factory=dict)
    shares: bool = False
    totals: dict[HloComputation, float] = field(default_factory=dict)
    _times: dict[HloInstruction, CollectiveTime] = field(default_factory=dict)
    _seconds: dict[HloInstruction, float] = field(default_factory=dict)
    _inside: dict[HloComputation, Communication] = field(default_factory=dict)

    def time_of(self, x: HloInstruction) -> CollectiveTime:
        """Return the cost of a collective or of its start."""
        if x not in self._times:
            self._times[x] = self.estimator.collective(x)
        return self._times[x]

    def transfer_of(self, x: HloInstruction) -> Transfer:
        """Return the cost of a collective or of its start."""
        time = self.time_of(x)
        load = max((self.busy.get(link.exchange, 0.0) for link in time.links), default=0.0)
        ports = tuple((link.exchange, link.seconds) for link in time.links)
        return Transfer(time.seconds, ports, load)

    def links(self) -> tuple[Links, ...]:
        """Return empty links, one for each way in which they may work."""
        return (QueuedLinks(), SharedLinks()) if self.shares else (QueuedLinks(),)

    def seconds_of(self, x: HloInstruction) -> float:
        """Return the seconds for which ``x`` occupies the device: 0 for starts and dones, all of a blocking
        collective."""
        if x.opcode in CALLERS:
            return summed_over_callees(x, [self.totals[callee] for callee in x.called_computations])
        if x not in self._seconds:
            self._seconds[x] = self._look(x)
        return self._seconds[x]

    def _look(self, x: HloInstruction) -> float:
        if is_start(x) or is_done(x):
            return 0.0
        if is_blocking(x):
            return self.time_of(x).seconds
        return self.estimator.compute(x)

    def communication_of(self, x: HloInstruction) -> Communication:
        """Return the resources of a collective or its start, or of all collectives of a caller; none for others."""
        if is_start(x) or is_blocking(x):
            return Communication(
                frozenset((self.group_overlap.class_of(x),)),
                frozenset(link.exchange for link in self.time_of(x).links),
            )
        found = Communication()
        if x.opcode in CALLERS:
            for callee in x.called_computations:
                found |= self._inside_of(callee)
        return found

    def _inside_of(self, computation: HloComputation) -> Communication:
        if computation not in self._inside:
            found = Communication()
            for x in computation.instructions:
                found |= self.communication_of(x)
            self._inside[computation] = found
        return self._inside[computation]
