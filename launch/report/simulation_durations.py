"""Durations that a simulation takes from a measured run: seconds of each instruction, on each device of a trace.

A trace tells how long a collective took on each device, waiting for the others included. What it takes by itself
begins when its last member is ready. That time is the simulation's input, from which it computes the waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from collectives.cost.estimator import CostError, Estimator
from collectives.cost.profiled import MAX_BYTES, Durations, ProfiledEstimator, read_durations
from collectives.schedule.phases import is_blocking, is_start
from collectives.simulate.activities import Series
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from launch.report.meetings import groups_and_pairs, who_meets
from launch.report.trace_events import timed_events
from spmd.analysis.executions import executions as computation_executions
from spmd.analysis.live_buffers import running_computations
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.opcode_roles import CALLERS, wrapped
from spmd.json_fields import JsonFields, read_json
from spmd.lazy_dataclass import dataclass

_MICROSECONDS = (0.0, 1e15)
_NUMBER = (0, 1 << 24)
_START, _DONE, _IN_FLIGHT = "CollectiveStart", "CollectiveDone", "Collective"
#: Thunks whose time is that of those inside them.
_AROUND_OTHERS = frozenset({"ThunkSequence", "While", "Conditional"})


@dataclass(frozen=True)
class TimedStep:
    """Times of one step.

    devices: durations on each device, or one entry for all.
    begins: by device, seconds from the beginning of the first device to its own; by default 0.
    series: by device, the durations of each execution of instructions that are executed several times.
    seconds: duration of the step; None without a trace.
    """

    devices: tuple[Durations, ...]
    begins: tuple[float, ...] = ()
    series: tuple[Series, ...] = ()
    seconds: float | None = None


def simulate_timed(
    module: HloModule, timed: TimedStep, described: Estimator, options: SimulationOptions
) -> Simulation:
    """Simulate a step of ``module`` with the times of ``timed``. ``described``: estimator of instructions without a
    time.

    Raises CostError if the numbers of timed devices and of the module's devices differ.
    """
    count = module.num_partitions * module.replica_count
    if len(timed.devices) not in (1, count):
        raise CostError(
            f"{len(timed.devices)} devices were timed, but {module.name} is to run on {count}"
        )
    estimators = [ProfiledEstimator(one, described) for one in timed.devices]
    if len(estimators) == count:
        options = replace(options, paces=range(count), begins=timed.begins, series=timed.series)
    return simulate(module, estimators, options)


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    name: str
    start: float
    end: float


def read_timed(data: bytes, where: str, module: HloModule) -> TimedStep:
    """Read the step of median length from a trace that `spmd run --profile` wrote of ``module``, or seconds by name.

    Raises CostError for other files.
    """
    found = JsonFields(read_json(data, where, "profile", MAX_BYTES, CostError), where, CostError)
    if not found.has("traceEvents"):
        durations = read_durations(data, where)
        names = {x.name for x in module.all_instructions()}
        if durations.compute and names.isdisjoint(durations.compute):
            raise CostError(
                f"{where}: is of another program: no instruction of {module.name} is in it"
            )
        return TimedStep((durations,))
    steps = traced_steps(found, module)
    if not steps:
        raise CostError(
            f"{where}: the trace is of another program: no instruction of {module.name} is in it"
        )
    return sorted(steps, key=lambda step: step.seconds or 0.0)[(len(steps) - 1) // 2]


def traced_steps(trace: JsonFields, module: HloModule) -> list[TimedStep]:
    """Return the steps of a trace of ``module``, without the first one if there are others."""
    names = {x.name for x in module.all_instructions()}
    steps: dict[int, dict[int, list[_Event]]] = defaultdict(lambda: defaultdict(list))
    known = False
    for step, device, event in _events(trace):
        steps[step][device].append(event)
        known = known or event.name in names
    if not known:
        return []
    measured = sorted(steps)[1:] or sorted(steps)
    return [_timed(dict(sorted(steps[step].items())), module) for step in measured]


def _timed(events: Mapping[int, list[_Event]], module: HloModule) -> TimedStep:
    """Return the durations of one step. ``events``: by device."""
    times = {x.name: count for x, count in executions(module).items()}
    kernels = [[*_kernels(own)] for own in events.values()]
    exchanged = _exchanged(events, module)
    starts = [min(event.start for event in own) for own in events.values()]
    return TimedStep(
        tuple(
            Durations(
                of_one_execution(own, module),
                {name: sum(each) / len(each) for name, each in exchanged[device].items()},
            )
            for device, own in zip(events, kernels, strict=True)
        ),
        tuple(start - min(starts) for start in starts),
        tuple(
            {**_series(own, times), **exchanged[device]}
            for device, own in zip(events, kernels, strict=True)
        ),
        max(event.end for own in events.values() for event in own) - min(starts),
    )


def _kernels(events: Iterable[_Event]) -> Iterator[tuple[str, float]]:
    """Name and seconds of whatever computes or copies, in order of time."""
    for event in sorted(events, key=lambda one: one.start):
        if event.kind not in (_START, _DONE, _IN_FLIGHT, *_AROUND_OTHERS):
            yield event.name, event.end - event.start


def _series(thunks: Iterable[tuple[str, float]], times: Mapping[str, int]) -> Series:
    """Return the series of seconds of instructions that are executed several times."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, seconds in thunks:
        if times.get(name, 0) > 1:
            found[name].append(seconds)
    series = {}
    for name, each in found.items():
        thunks_of_one, rest = divmod(len(each), times[name])
        if not rest:
            ends = range(0, len(each), thunks_of_one)
            series[name] = tuple(sum(each[n : n + thunks_of_one]) for n in ends)
    return series


def of_one_execution(thunks: Iterable[tuple[str, float]], module: HloModule) -> dict[str, float]:
    """Return the seconds of each instruction, from those of all thunks of a step by name.

    An instruction without a thunk takes no time: it is part of another one. Thunks of no instruction (copies of
    results) count as the entry's first instruction, those of an instruction without a cost of its own (copies of a
    loop's state) as the first one of its computation.
    """
    times = executions(module)
    payer = {x.name: _first(x) if x.opcode in CALLERS else x for x in times}
    total: dict[HloInstruction, float] = defaultdict(float)
    for name, seconds in thunks:
        total[payer.get(name, module.entry.instructions[0])] += seconds
    return {x.name: total[x] / count for x, count in times.items() if count}


def _exchanged(
    events: Mapping[int, list[_Event]], module: HloModule
) -> dict[int, dict[str, tuple[float, ...]]]:
    """Return, for each device and collective, the seconds of each execution: from when its members were ready to its
    end.
    """
    begun: dict[tuple[int, str], list[float]] = defaultdict(list)
    ended: dict[tuple[int, str], list[float]] = defaultdict(list)
    for device, own in events.items():
        for event in sorted(own, key=lambda one: one.start):
            if event.kind == _IN_FLIGHT:
                begun[device, event.name].append(event.start)
                ended[device, event.name].append(event.end)
    found: dict[int, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for x in module.all_instructions():
        if is_start(x) or is_blocking(x):
            for device, members in who_meets(*groups_and_pairs(wrapped(x), module)).items():
                times = zip(
                    ended[device, x.name], *(begun[m, x.name] for m in members), strict=False
                )
                seconds = tuple(max(end - max(ready), 0.0) for end, *ready in times)
                if seconds:
                    found[device][x.name] = seconds
    return found


def _first(x: HloInstruction) -> HloInstruction:
    """Return the first instruction of its computation."""
    assert x.parent is not None
    return x.parent.instructions[0]


def executions(module: HloModule) -> dict[HloInstruction, int]:
    """Return how often a simulated step runs each instruction; branches of a conditional count for any of them."""
    times = computation_executions(module)
    return {x: times[c] for c in running_computations(module) for x in c.instructions}


def _events(trace: JsonFields) -> Iterator[tuple[int, int, _Event]]:
    """Yield (step, device, event) of events with a duration, in seconds. Raises CostError if fields are missing or
    wrong.
    """
    for event in timed_events(trace):
        start = event.number("ts", _MICROSECONDS) / 1e6
        seconds = event.number("dur", _MICROSECONDS) / 1e6
        args = event.nested("args")
        if args.has("blocking"):
            continue  # another order than the program's
        step = args.integer("step", _NUMBER)
        kind, name = event.text("cat"), event.text("name")
        end = start + seconds
        if args.has("wait_end"):
            end = _over(args, end)
        yield step, event.integer("pid", _NUMBER), _Event(kind, name, start, end)


def _over(fields: JsonFields, landed: float) -> float:
    """Return when a collective let the device continue: at the end of the wait, if the device waited for it."""
    wait_start, wait_end = (
        fields.number(name, _MICROSECONDS) / 1e6 for name in ("wait_start", "wait_end")
    )
    return wait_end if landed > wait_start else landed
