"""Starts and dones become one collective again where nothing of weight lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from collectives.cost.custom_calls import CallCost
from collectives.cost.profiled import with_measured
from collectives.cost.roofline import RooflineEstimator
from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.overlap_limits import OverlapLimits
from collectives.schedule.phases import is_done, is_start
from collectives.schedule.scheduling_groups import group_of
from collectives.schedule.timeline import run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_buffers import running_computations
from spmd.hlo.collective_opcodes import START_AND_DONE
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode_roles import WEIGHTLESS, wrapped
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import MACHINE_OPTION, PassResult, register_pass
from spmd.passes.rewrite import move_control_edges

#: Launches that a pair adds: the communication stream waits for the operands of the start, and the compute stream waits
#: at the done.
MORE_DISPATCHES = 2
_SYNCHRONOUS = {start: opcode for opcode, (start, _) in START_AND_DONE.items()}


@dataclass(frozen=True)
class BlockingAgain:
    """Names of starts that became blocking, with the names of the collectives that replaced them."""

    names: Mapping[str, str]


@register_pass
@dataclass(frozen=True)
class AsyncToSync(FueledPass):
    """Make one collective of a start and its done where no work lies between them.

        s = f32[8] all-reduce-start(x)
        t = (f32[8]) tuple(x)                =>   d = f32[8] all-reduce(x)
        d = f32[8] all-reduce-done(s)             t = (f32[8]) tuple(x)

    With a machine, the same for windows that hide less there than it takes to dispatch what a pair has more. What its
    author put into a scheduling group stays. costs: of custom calls, by target. durations: seconds of instructions, by
    name, where they were measured.
    """

    name: ClassVar[str] = "async-to-sync"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.SCHEDULED,)
    machine: MachineDescription | None = field(default=None, metadata=MACHINE_OPTION)
    costs: tuple[tuple[str, CallCost], ...] = ()
    durations: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        return bool(self._synchronize(module, fuel).names)

    def run_with_notes(self, module: HloModule) -> PassResult:
        """Run the pass; its note says which collectives block again."""
        blocking = self._synchronize(module, Fuel())
        return PassResult(bool(blocking.names), (blocking,))

    def _synchronize(self, module: HloModule, fuel: Fuel) -> BlockingAgain:
        useless = self._useless(module, self.machine) if self.machine else None
        names: dict[str, str] = {}
        for computation in running_computations(module):
            found = useless.windows(computation) if useless else _idle_windows(computation)
            possible = [start for start in found if _can_be_one(start)]
            made = synchronize(computation, list(fuel.enough_for(possible)))
            names |= {start.name: one.name for start, one in made.items()}
            if useless is not None:
                useless.settle(computation)
        if names:
            module.remove_unreachable_computations()
        return BlockingAgain(names)

    def _useless(self, module: HloModule, machine: MachineDescription) -> _Useless:
        estimator = RooflineEstimator.of(module, machine, dict(self.costs), unknown_by_bytes=True)
        measured = with_measured(estimator, self.durations)
        shares = not OverlapLimits.on(machine).apart
        costs = WindowCosts(measured, GroupOverlap(module), machine.busy, shares)
        return _Useless(costs, MORE_DISPATCHES * machine.thunk_seconds)


class _Useless:
    """Windows that hide no more than ``least`` seconds; computations are asked for and settled callees first."""

    def __init__(self, costs: WindowCosts, least: float) -> None:
        self._costs, self._least = costs, least

    def windows(self, computation: HloComputation) -> list[HloInstruction]:
        spans = run_timeline(computation.instructions, self._costs).spans
        return [
            span.collective
            for span in spans
            if is_start(span.collective) and span.hidden <= self._least
        ]

    def settle(self, computation: HloComputation) -> None:
        self._costs.totals[computation] = run_timeline(
            computation.instructions, self._costs
        ).seconds


def _idle_windows(computation: HloComputation) -> list[HloInstruction]:
    """Return the starts between which and their dones no instruction takes time."""
    work = 0
    before: dict[HloInstruction, int] = {}
    found = []
    for x in computation.instructions:
        if is_start(x):
            before[x] = work
        elif is_done(x):
            start = x.operand(0)
            if before[start] == work:
                found.append(start)
        elif x.opcode not in WEIGHTLESS:
            work += 1
    return found


def _can_be_one(start: HloInstruction) -> bool:
    """Return whether one operation at the start's position may replace both: no control dependency delays the done."""
    (done,) = start.users
    return not done.control_predecessors and group_of(start) is None


def synchronize(
    computation: HloComputation, starts: Sequence[HloInstruction]
) -> dict[HloInstruction, HloInstruction]:
    """Replace each of ``starts`` and its done by one collective at the start's position. Returns the collectives by
    start.
    """
    made = {start: _one_of(start, computation) for start in starts}
    if made:
        _put_in_order(computation, made)
    return made


def _one_of(start: HloInstruction, computation: HloComputation) -> HloInstruction:
    """Add the synchronous collective with the annotations and control edges of start and done, which still exist."""
    (done,) = start.users
    kind = wrapped(start)
    one = kind.clone(done.shape, start.operands)
    one.opcode = _SYNCHRONOUS.get(start.opcode, kind.opcode)
    one.annotations, one.sharding = start.annotations, done.sharding
    computation.add(one, done.name.replace("-done", "", 1))
    for half in (start, done):
        move_control_edges(half, one)
    return one


def _put_in_order(
    computation: HloComputation, made: Mapping[HloInstruction, HloInstruction]
) -> None:
    new = dict.fromkeys(made.values())
    order = [made.get(x, x) for x in computation.instructions if x not in new]
    for start, one in made.items():
        (done,) = start.users
        computation.replace(done, one)
        computation.remove(start)
    computation.set_order(x for x in order if x.parent is computation)
