"""Notes in a trace on the program that was run: its collectives, predictions of them, and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from collectives.cost.roofline import RooflineEstimator
from collectives.schedule.phases import is_blocking, is_start
from collectives.schedule.scheduled_overlap import ScheduledOverlap
from collectives.simulate.activities import Site as SimulatedSite
from collectives.simulate.result import CollectiveResult, Simulation
from collectives.simulate.simulate import SimulationOptions
from launch.report.meetings import groups_and_pairs
from launch.report.overlap.model import Site
from launch.report.simulation import as_json
from launch.report.simulation_durations import TimedStep, simulate_timed
from launch.report.simulation_predicted import predicted_durations
from runtime.executable import Executable
from spmd.errors import SpmdError
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named


@dataclass(frozen=True)
class ProgramNotes:
    """See MeasuredRun. ``predicted`` is None if a note states the reason."""

    machine: str
    sites: dict[str, Site]
    predicted: dict[str, Any] | None
    notes: tuple[str, ...] = ()


def program_notes(executable: Executable, machine: MachineDescription, cores: int) -> ProgramNotes:
    """Return the notes on a program whose devices share ``cores``. ``machine``: its target, as far as options tell."""
    sites = {site.name: site for site in _sites(executable.module)}
    try:
        machine = _compiled_for(executable, machine)
        predicted, found = _predicted(executable, machine, cores)
    except SpmdError as error:
        name = machine.name if executable.overlap is None else executable.overlap.machine
        return ProgramNotes(name, sites, None, (f"nothing is predicted: {error}",))
    for one in found.collectives:
        sites[one.name] = _with_prediction(sites[one.name], one)
    if executable.overlap is not None:
        sites = {name: _with_limits(site, executable.overlap) for name, site in sites.items()}
    return ProgramNotes(machine.name, sites, predicted)


def _compiled_for(executable: Executable, machine: MachineDescription) -> MachineDescription:
    """Return the machine that a saved program was compiled for, which may differ from ``machine``. Raises SpmdError if
    its name is unknown.
    """
    overlap = executable.overlap
    if overlap is None or overlap.machine == machine.name:
        return machine
    return machine_named(overlap.machine, (machine,))


def _sites(module: HloModule) -> Iterator[Site]:
    for x in module.all_instructions():
        if not (is_start(x) or is_blocking(x)):
            continue
        seen = SimulatedSite(x, ())
        groups, pairs = groups_and_pairs(seen.operation, module)
        yield Site(x.name, seen.kind, seen.bytes, groups, pairs, blocking=seen.is_blocking)


def _predicted(
    executable: Executable, machine: MachineDescription, cores: int
) -> tuple[dict[str, Any], Simulation]:
    """Return the output of `spmd simulate --json`, and the simulation. Raises SpmdError if a cost is unknown."""
    durations = predicted_durations(executable, machine, cores)
    limited = {one.name: one.limited for one in _scheduled(executable.overlap)}
    options = SimulationOptions(busy=machine.busy, limited=limited)
    described = RooflineEstimator.of(executable.module, machine)
    found = simulate_timed(executable.module, TimedStep((durations,)), described, options)
    kernels = {name: seconds for name, seconds in durations.compute.items() if seconds}
    return {**as_json(found, machine), "kernels": kernels}, found


def _scheduled(overlap: ScheduledOverlap | None) -> tuple[Any, ...]:
    return () if overlap is None else overlap.collectives


def _with_prediction(site: Site, found: CollectiveResult) -> Site:
    return replace(
        site,
        exchanges=found.exchanges,
        independent=found.independent,
        producer=found.producer,
        user=found.user,
    )


def _with_limits(site: Site, overlap: ScheduledOverlap) -> Site:
    said = overlap.of(site.name)
    if said is None:
        return site
    in_flight_limit = overlap.per_exchange
    return replace(
        site,
        limited=said.limited,
        in_flight_limited=said.in_flight_limited,
        in_flight_limit=in_flight_limit,
    )
