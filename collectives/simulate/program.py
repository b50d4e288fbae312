"""Conversion of a scheduled module to activities: kernels and collectives with their seconds, and loops.

    while         a Loop with the trips of its induction variable; one trip, with a note, if their number is unknown
    conditional   the slowest branch, because the branch that is taken is unknown
    call          its computation
    host copies   transfers on the host's link; a move by a custom call ends before the first instruction that reads it

The time of a computation without collectives does not depend on the links. A while loop over such a computation is one
piece of work, and so is a call of it if it calls others; if it calls none, a call is replaced by its activities. A
computation with collectives becomes a Loop wherever it is executed, of one trip if it is executed once. The number of
activities therefore stays small if computations that call others are executed many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectives.cost.estimator import CollectiveTime, Estimator
from collectives.cost.host_link import ended_start
from collectives.schedule.phases import is_blocking, is_done, is_start
from collectives.simulate.activities import (
    Activities,
    Activity,
    Loop,
    Program,
    Site,
    Start,
    Wait,
    Work,
)
from spmd.analysis.executions import counted_trips
from spmd.analysis.trip_count import trip_count
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.opcode_roles import CALLERS, WEIGHTLESS, wrapped

#: Transfers with the host or another program, whose time no estimator predicts.
_REFUSED = frozenset(
    {
        Opcode.SEND,
        Opcode.RECV,
        Opcode.INFEED,
        Opcode.OUTFEED,
    }
)


def program_of(module: HloModule, estimators: Sequence[Estimator]) -> Program:
    """Return the activities of ``module``, with the seconds of each of ``estimators``.

    Raises UnsupportedError if the module is not scheduled or contains transfers with the host or another program, and
    CostError if an estimator does not know an instruction.
    """
    if module.stage < Stage.SCHEDULED:
        raise UnsupportedError(
            f"{module.name} is {module.stage.name.lower()}, but a simulation needs a scheduled module"
        )
    reader = _ProgramReader(estimators)
    activities = reader.of(module.entry)
    return Program(activities, tuple(reader.sites), reader.branches, tuple(reader.notes))


class _ProgramReader:
    """Converter of computations to activities. Each computation is converted once, however often it is called."""

    def __init__(self, estimators: Sequence[Estimator]) -> None:
        self.sites: list[Site] = []
        self.notes: list[str] = []
        self.branches: dict[HloInstruction, HloComputation] = {}
        self._estimators = estimators
        self._number: dict[HloInstruction, int] = {}
        self._known: dict[HloComputation, Activities] = {}
        self._alone: dict[HloComputation, float] = {}

    def of(self, computation: HloComputation) -> Activities:
        """Return the activities of one execution of ``computation``."""
        if computation not in self._known:
            activities: list[Activity] = []
            seconds = 0.0
            moves = _OpenMoves()
            for x in computation.instructions:
                own = [*self._activities(x)]
                activities += (Wait(self._number[move]) for move in moves.ended_by(x))
                seconds += sum(self._seconds(activity, x) for activity in own)
                activities += own
                if x.opcode is Opcode.CUSTOM_CALL and x in self._number:
                    moves.add(x)
            activities += (Wait(self._number[move]) for move in moves.open)
            self._known[computation], self._alone[computation] = tuple(activities), seconds
        return self._known[computation]

    def _activities(self, x: HloInstruction) -> Iterator[Activity]:
        """Yield the activities of one execution of ``x``."""
        if x.opcode is Opcode.WHILE:
            yield from self._loop(x)
        elif x.opcode is Opcode.CONDITIONAL:
            yield from self._costliest_branch(x)
        elif x.opcode is Opcode.CALL:
            yield from self._once(x.name, x.to_apply)
        elif is_done(x):
            yield Wait(self._number[x.operand(0)])
        elif is_start(x) or is_blocking(x):
            yield from self._collective(x)
        elif x.opcode in _REFUSED:
            raise UnsupportedError(
                f"{x!r}: the simulation has no cost for {x.opcode}: it transfers data with the host or another program"
            )
        elif (start := ended_start(x)) in self._number:
            assert start is not None
            yield Wait(self._number[start])
        else:
            copies = [each.host_copy(x) for each in self._estimators]
            times = tuple(copy for copy in copies if copy is not None)
            if len(times) == len(copies):
                yield from self._transfer(x, times)
            else:
                yield from self._work(x.name, self._computed(wrapped(x)))

    def _collective(self, x: HloInstruction) -> Iterator[Activity]:
        yield from self._transfer(x, tuple(each.collective(x) for each in self._estimators))

    def _transfer(self, x: HloInstruction, times: tuple[CollectiveTime, ...]) -> Iterator[Activity]:
        site = self._number[x] = len(self.sites)
        self.sites.append(Site(x, times))
        yield Start(site)
        if self.sites[site].is_blocking:
            yield Wait(site)

    def _computed(self, x: HloInstruction) -> tuple[float, ...]:
        return tuple(each.compute(x) for each in self._estimators)

    def _work(self, name: str, seconds: tuple[float, ...]) -> Iterator[Activity]:
        if any(seconds):
            yield Work(name, seconds)

    def _loop(self, loop: HloInstruction) -> Iterator[Activity]:
        if trip_count(loop) is None:
            self.notes.append(f"{loop.name}: its trip count is unknown; counted as one trip")
        trips = counted_trips(loop)
        yield from self._once(loop.name, loop.while_condition)
        around = (*self.of(loop.while_body), *self.of(loop.while_condition))
        yield from self._repeated(loop.name, around, trips)

    def _once(self, name: str, computation: HloComputation) -> Iterator[Activity]:
        """Yield the activities of one execution of ``computation`` by the instruction ``name``."""
        activities = self.of(computation)
        is_leaf = not any(computation.with_opcode(*CALLERS))
        if is_leaf and all(isinstance(activity, Work) for activity in activities):
            yield from activities
        else:
            yield from self._repeated(name, activities, 1)

    def _repeated(self, name: str, activities: Activities, times: int) -> Iterator[Activity]:
        """Yield ``times`` executions of ``activities``: one piece of work, or a Loop if they contain collectives."""
        work = [activity.seconds for activity in activities if isinstance(activity, Work)]
        if len(work) < len(activities):
            if times:
                yield Loop(name, times, activities)
            return
        paces = range(len(self._estimators))
        yield from self._work(name, tuple(times * sum(one[pace] for one in work) for pace in paces))

    def _costliest_branch(self, conditional: HloInstruction) -> Iterator[Activity]:
        for branch in conditional.called_computations:
            self.of(branch)
        costs = [self._alone[branch] for branch in conditional.called_computations]
        costliest = costs.index(max(costs))
        self.branches[conditional] = conditional.called_computations[costliest]
        if len(set(costs)) > 1:
            name = self.branches[conditional].name
            self.notes.append(
                f"{conditional.name}: the branch taken is unknown; counted as the most expensive one, {name}"
            )
        yield from self._once(conditional.name, self.branches[conditional])

    def _seconds(self, activity: Activity, x: HloInstruction) -> float:
        """Return the seconds of ``activity``, one of those of ``x``, at the slowest pace and without overlap."""
        if isinstance(activity, Work):
            return max(activity.seconds)
        if isinstance(activity, Start):
            return max(time.seconds for time in self.sites[activity.site].times)
        if isinstance(activity, Wait):
            return 0.0
        if x.opcode is not Opcode.WHILE:
            return self._alone[self.branches.get(x, x.called_computations[0])]
        condition = self._alone[x.while_condition]
        if activity.body is self._known[x.while_condition]:
            return condition
        return activity.trips * (self._alone[x.while_body] + condition)


class _OpenMoves:
    """Moves by custom calls that have begun, and the values through which their results can be read."""

    def __init__(self) -> None:
        self.open: dict[HloInstruction, None] = {}
        self._shown: dict[HloInstruction, tuple[HloInstruction, ...]] = {}

    def add(self, move: HloInstruction) -> None:
        self.open[move] = None
        self._shown[move] = (move,)

    def ended_by(self, x: HloInstruction) -> list[HloInstruction]:
        """Return the open moves whose results ``x`` reads, and remove them."""
        shown = dict.fromkeys(move for y in x.operands for move in self._shown.get(y, ()))
        if x.opcode in WEIGHTLESS:
            if shown:
                self._shown[x] = tuple(shown)
            return []
        found = [move for move in shown if move in self.open]
        for move in found:
            del self.open[move]
        return found
