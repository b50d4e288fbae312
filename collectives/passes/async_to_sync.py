"""Starts and dones become one collective again where nothing of weight lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from collectives.passes.async_creation import PAIRS
from collectives.schedule.phases import is_done, is_start
from spmd.analysis.live_buffers import running_computations
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import move_control_edges

_SYNCHRONOUS = {start: opcode for opcode, (start, _) in PAIRS.items()}
#: No work on a device.
_WEIGHTLESS = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BITCAST,
        Opcode.AFTER_ALL,
        Opcode.OPT_BARRIER,
        Opcode.PARTITION_ID,
        Opcode.REPLICA_ID,
    }
)


@register_pass
@dataclass(frozen=True)
class AsyncToSync(FueledPass):
    """Make one collective of a start and its done where no work lies between them.

        s = f32[8] all-reduce-start(x)
        t = (f32[8]) tuple(x)                =>   d = f32[8] all-reduce(x)
        d = f32[8] all-reduce-done(s)             t = (f32[8]) tuple(x)

    What starts in between is no work. ``synchronize`` does the same for pairs of the caller's choice: those whose
    windows hide less than it costs to have two operations instead of one.
    """

    name: ClassVar[str] = "async-to-sync"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.SCHEDULED,)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        changed = False
        for computation in running_computations(module):
            idle = fuel.enough_for(_idle_windows(computation))
            changed |= synchronize(computation, list(idle))
        if changed:
            module.remove_unreachable_computations()
        return changed


def _idle_windows(computation: HloComputation) -> list[HloInstruction]:
    """Starts with nothing but weightless instructions and other starts and dones up to their dones."""
    work = 0
    before: dict[HloInstruction, int] = {}
    found = []
    for x in computation.instructions:
        if is_start(x):
            before[x] = work
        elif is_done(x):
            start = x.operand(0)
            if before[start] == work and _can_be_one(start, x):
                found.append(start)
        elif x.opcode not in _WEIGHTLESS:
            work += 1
    return found


def _can_be_one(start: HloInstruction, done: HloInstruction) -> bool:
    """Nothing has to stand between them: the one operation stands where the start does."""
    return not done.control_predecessors and all(user is done for user in start.users)


def synchronize(computation: HloComputation, starts: Sequence[HloInstruction]) -> bool:
    """Make one collective, in the start's place, of each of ``starts`` and its done."""
    made = {start: _one_of(start, computation) for start in starts}
    if not made:
        return False
    _put_in_order(computation, made)
    return True


def _one_of(start: HloInstruction, computation: HloComputation) -> HloInstruction:
    """The collective, with all that the start and the done have; both are still there."""
    (done,) = start.users
    kind = start.to_apply.root if start.opcode is Opcode.ASYNC_START else start
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
