"""From a scheduled module to steps: control flow is entered, kernels and collectives get their seconds.

    while         a Loop of as many trips as its induction variable tells; one where nothing does, which a note says
    conditional   the dearest branch: which one is taken is not known
    call          its computation, in place

A computation without collectives is the same however busy the links are: a loop over one is a single piece of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectives.cost.estimator import Estimator
from collectives.schedule.phases import is_blocking, is_done, is_start
from collectives.simulate.steps import (
    Loop,
    Program,
    Site,
    Start,
    Step,
    Steps,
    Wait,
    Work,
)
from spmd.analysis.executions import counted_trips
from spmd.analysis.trip_count import trip_count
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.opcode_roles import wrapped

#: Transfers that no estimator tells the time of: they are with a host or another program.
_REFUSED = frozenset(
    {
        Opcode.SEND,
        Opcode.RECV,
        Opcode.INFEED,
        Opcode.OUTFEED,
    }
)


def program_of(module: HloModule, estimators: Sequence[Estimator]) -> Program:
    """The steps of ``module``, with seconds of each estimator. UnsupportedError where it is not scheduled yet."""
    if module.stage < Stage.SCHEDULED:
        raise UnsupportedError(
            f"{module.name} is {module.stage.name.lower()}: a simulation runs the order of a scheduled module"
        )
    walk = _Walk(estimators)
    steps = walk.of(module.entry)
    return Program(steps, tuple(walk.sites), len(estimators), walk.branches, tuple(walk.notes))


class _Walk:
    """Each computation is read once, however often it is called."""

    def __init__(self, estimators: Sequence[Estimator]) -> None:
        self.sites: list[Site] = []
        self.notes: list[str] = []
        self.branches: dict[HloInstruction, HloComputation] = {}
        self._estimators = estimators
        self._number: dict[HloInstruction, int] = {}
        self._known: dict[HloComputation, Steps] = {}

    def of(self, computation: HloComputation) -> Steps:
        if computation not in self._known:
            found = (
                step
                for instruction in computation.instructions
                for step in self._steps(instruction)
            )
            self._known[computation] = tuple(found)
        return self._known[computation]

    def _steps(self, x: HloInstruction) -> Iterator[Step]:
        if x.opcode is Opcode.WHILE:
            yield from self._loop(x)
        elif x.opcode is Opcode.CONDITIONAL:
            yield from self._dearest(x)
        elif x.opcode is Opcode.CALL:
            yield from self.of(x.to_apply)
        elif is_done(x):
            yield Wait(self._number[x.operand(0)])
        elif is_start(x) or is_blocking(x):
            yield from self._collective(x)
        elif x.opcode in _REFUSED:
            raise UnsupportedError(
                f"{x!r}: {x.opcode} is not simulated: how long it takes is not described"
            )
        else:
            yield from self._work(x.name, self._computed(wrapped(x)))

    def _collective(self, x: HloInstruction) -> Iterator[Step]:
        site = self._number[x] = len(self.sites)
        self.sites.append(Site(x, tuple(each.collective(x) for each in self._estimators)))
        yield Start(site)
        if self.sites[site].is_blocking:
            yield Wait(site)

    def _computed(self, x: HloInstruction) -> tuple[float, ...]:
        return tuple(each.compute(x) for each in self._estimators)

    def _work(self, name: str, seconds: tuple[float, ...]) -> Iterator[Step]:
        if any(seconds):
            yield Work(name, seconds)

    def _loop(self, loop: HloInstruction) -> Iterator[Step]:
        if trip_count(loop) is None:
            self.notes.append(f"{loop.name}: how often it runs is not known; counted once")
        trips = counted_trips(loop)
        condition, body = self.of(loop.while_condition), self.of(loop.while_body)
        around = (*body, *condition)
        yield from condition
        if all(isinstance(step, Work) for step in around):
            yield from self._work(loop.name, self._repeated(around, trips))
        elif trips == 1:
            yield from around
        elif trips > 1:
            yield Loop(loop.name, trips, around)

    def _repeated(self, steps: Steps, times: int) -> tuple[float, ...]:
        work = [step.seconds for step in steps if isinstance(step, Work)]
        return tuple(
            times * sum(one[pace] for one in work) for pace in range(len(self._estimators))
        )

    def _dearest(self, conditional: HloInstruction) -> Iterator[Step]:
        branches = [self.of(branch) for branch in conditional.called_computations]
        costs = [self.alone(branch) for branch in branches]
        dearest = costs.index(max(costs))
        self.branches[conditional] = conditional.called_computations[dearest]
        if len(set(costs)) > 1:
            name = self.branches[conditional].name
            self.notes.append(
                f"{conditional.name}: which branch is taken is not known; counted as the dearest, {name}"
            )
        yield from branches[dearest]

    def alone(self, steps: Steps) -> float:
        """Seconds of the slowest pace where nothing is hidden."""
        return sum(self._alone(step) for step in steps)

    def _alone(self, step: Step) -> float:
        if isinstance(step, Work):
            return max(step.seconds)
        if isinstance(step, Loop):
            return step.trips * self.alone(step.body)
        if isinstance(step, Start):
            return max(time.seconds for time in self.sites[step.site].times)
        return 0.0
