"""Simulation of one step of a scheduled module on a described machine: its time and the causes of its waits.

This module is the entry point of the folder:

module ─ program.py ─► activities ─ device_classes.py ─► classes ─ engine.py ─► totals, timeline ─ here ─► Simulation
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from collectives.cost.estimator import Estimator
from collectives.cost.independence import independent_seconds
from collectives.simulate.activities import Program, Series, Site
from collectives.simulate.bound import Bounds
from collectives.simulate.device import ANY_LINK, SimulatedDevice, Total
from collectives.simulate.device_classes import MAX_CLASSES, DeviceClasses, classify_devices
from collectives.simulate.engine import Engine
from collectives.simulate.program import program_of
from collectives.simulate.reasons import Waiting, causes_of, neighbours, why
from collectives.simulate.remembered import RememberedEstimator
from collectives.simulate.result import CollectiveResult, ResourceUse, Simulation
from collectives.simulate.timeline import Timeline
from spmd.analysis.live_bytes import peak_bytes
from spmd.analysis.wire import result_bytes
from spmd.hlo import HloComputation, HloInstruction, HloModule
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import group_size
from spmd.ops.opdef import SizeOf, byte_size

_ROUNDING = 1e-9


@dataclass(frozen=True)
class SimulationOptions:
    """Options of a simulation.

    paces: the index of each device's estimator; by default 0.
    begins: when the devices of each pace begin, in seconds; by default all at 0.
    series: by pace, the seconds of each execution of collectives, where they differ between executions.
    busy: by exchange, the fraction of a device's processors that transfers take from kernels if they fully use it.
    limited: by collective, the seconds of one execution that are exposed because of its scheduler's memory limit.
    size_of: gives the bytes of an array on the wire; memory_of: those of a device's memory that it takes.
    extrapolated: count repeating trips of loops instead of simulating them.
    timeline: record the timeline.
    """

    paces: Sequence[int] | None = None
    begins: Sequence[float] = ()
    series: Sequence[Series] = ()
    busy: Mapping[str, float] = field(default_factory=dict)
    limited: Mapping[str, float] = field(default_factory=dict)
    size_of: SizeOf = byte_size
    memory_of: SizeOf = byte_size
    extrapolated: bool = True
    timeline: bool = False


def simulate(
    module: HloModule,
    estimators: Sequence[Estimator],
    options: SimulationOptions | None = None,
) -> Simulation:
    """Simulate one step of ``module`` on ``num_partitions * replica_count`` devices.

    ``estimators`` holds one estimator for each pace of devices (``SimulationOptions.paces``).

    Raises UnsupportedError for a module that is not scheduled or has transfers with the host or another program,
    CostError if an estimator does not know an instruction, and ShapeError for groups with devices that do not exist.
    """
    options = options or SimulationOptions()
    asked = tuple(RememberedEstimator(one) for one in estimators)
    program = program_of(module, asked)
    device_classes = classify_devices(
        program.sites, module.num_partitions, module.replica_count, options.paces
    )
    timeline = Timeline(options.timeline)
    engine = Engine(
        program, device_classes, options.busy, options.series, options.extrapolated, timeline
    )
    seconds = engine.run(options.begins)
    device = max(engine.devices, key=lambda one: one.end or 0.0)
    bounds = Bounds(
        asked[device.pace], program.branches, _absent(program, device_classes, device.number)
    )
    notes = program.notes
    if not device_classes.exact:
        notes += (
            f"more than {MAX_CLASSES} device classes: devices of equal speed count as one class",
        )
    return Simulation(
        module=module.name,
        seconds=seconds,
        compute=device.totals.get((Total.COMPUTE,), 0.0),
        slowed=_without_rounding(device.totals.get((Total.SLOWED,), 0.0), seconds),
        exposed=sum(_by_part(device, Total.EXPOSED).values()),
        communication=device.busy(device.end or 0.0).get(ANY_LINK, 0.0),
        bound=bounds.of(module.entry),
        peak_bytes=peak_bytes(module, options.memory_of),
        devices=sum(device_classes.sizes),
        classes=len(device_classes.sizes),
        device=device_classes.representatives[device.number],
        class_size=device_classes.sizes[device.number],
        collectives=_collectives(program, device_classes, device, bounds, options),
        resources=_resources(device),
        notes=notes,
        slices=tuple(timeline.of(device.number)),
    )


def _without_rounding(difference: float, total: float) -> float:
    """Return the difference of two sums of about ``total``; 0 if it is rounding of the order of additions."""
    return difference if difference > _ROUNDING * total else 0.0


# ---- resources
def _resources(device: SimulatedDevice) -> tuple[ResourceUse, ...]:
    """Return the use of each resource, that of all links together first."""
    compute = device.totals.get((Total.COMPUTE,), 0.0)
    exposed = _by_part(device, Total.WHILE_EXPOSED)
    return tuple(
        ResourceUse(
            name, busy, min(compute, busy), _without_rounding(busy - exposed.get(name, 0.0), busy)
        )
        for name, busy in device.busy(device.end or 0.0).items()
    )


def _by_part(device: SimulatedDevice, what: Total) -> dict[object, float]:
    """Return the totals of kind ``what`` by their part: the collective's number, or the resource."""
    return {key[1]: seconds for key, seconds in device.totals.items() if key[0] is what}


# ---- collectives
def _collectives(
    program: Program,
    device_classes: DeviceClasses,
    device: SimulatedDevice,
    bounds: Bounds,
    options: SimulationOptions,
) -> tuple[CollectiveResult, ...]:
    """Return the collectives in which the device takes part, in the order of the program."""
    executions, moving, exposed = (
        _by_part(device, what) for what in (Total.EXECUTIONS, Total.MOVING, Total.EXPOSED)
    )
    late: dict[object, dict[int, float]] = defaultdict(dict)
    contended: dict[object, dict[tuple[str, str], float]] = defaultdict(dict)
    for key, seconds in device.totals.items():
        match key:
            case (Total.LATE, site, int(peer)):
                late[site][device_classes.representatives[peer]] = seconds
            case (Total.CONTENDED, site, str(exchange), int(other)):
                contended[site][exchange, program.sites[other].name] = seconds
    independent = _independent(program.sites, bounds)
    position = _positions(program.sites)
    found = []
    for number, site in enumerate(program.sites):
        if number not in executions:
            continue
        time = site.times[device.pace]
        around = bounds.of(_computation(site))
        waiting = Waiting(
            exposed=exposed.get(number, 0.0),
            executions=executions[number],
            alone=time.seconds,
            independent=independent[site.instruction],
            work=around.compute,
            links={link.exchange: around.links[link.exchange] for link in time.links},
            limited=options.limited.get(site.name, 0.0),
            late=late[number],
            contended=contended[number],
        )
        causes = causes_of(site, waiting)
        producer, user = neighbours(site.instruction, _length(bounds), position.__getitem__)
        found.append(
            CollectiveResult(
                name=site.name,
                kind=site.kind,
                bytes=result_bytes(site.operation, options.size_of),
                group_size=_group_size(site),
                algorithm=time.algorithm,
                executions=round(executions[number]),
                seconds=moving[number],
                exposed=waiting.exposed,
                causes=causes,
                why=why(site, waiting, causes, (producer, user)),
                exchanges=tuple(link.exchange for link in time.links),
                independent=waiting.independent,
                producer=producer.name if producer else "",
                user=user.name if user else "",
            )
        )
    return tuple(found)


def _absent(
    program: Program, device_classes: DeviceClasses, number: int
) -> dict[HloInstruction, None]:
    """Return the collectives in which a class of devices takes no part."""
    return {
        site.instruction: None
        for site, rendezvous_of_classes in zip(
            program.sites, device_classes.rendezvous_of_classes, strict=True
        )
        if not any(number in rendezvous.numbers for rendezvous in rendezvous_of_classes[number])
    }


def _length(bounds: Bounds) -> Callable[[HloInstruction], float]:
    """Return a function that returns the seconds of one execution of an instruction, callees included."""
    return lambda x: bounds.of_instruction(x).path


def _independent(sites: Sequence[Site], bounds: Bounds) -> dict[HloInstruction, float]:
    """Return the seconds of work that can overlap one execution of each collective."""
    inside: dict[HloComputation, list[HloInstruction]] = defaultdict(list)
    for site in sites:
        inside[_computation(site)].append(site.instruction)
    found: dict[HloInstruction, float] = {}
    for computation, collectives in inside.items():
        found |= independent_seconds(
            computation, collectives, lambda x: bounds.of_instruction(x).compute
        )
    return found


def _positions(sites: Sequence[Site]) -> dict[HloInstruction, int]:
    """Return the positions of instructions in the schedules of the computations that contain collectives."""
    computations = dict.fromkeys(map(_computation, sites))
    return {x: n for inside in computations for n, x in enumerate(inside.instructions)}


def _computation(site: Site) -> HloComputation:
    assert site.instruction.parent is not None
    return site.instruction.parent


def _group_size(site: Site) -> int:
    if site.is_copy:
        return 1
    if isinstance(site.operation.attrs, CollectivePermuteAttrs):
        return 2
    return group_size(site.operation) or 1
