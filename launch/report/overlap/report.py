"""Overlap report of a measured run: the analysis as a table of contents. Read model.py first.

typical steps ──► alone ──► slowdown ──► exposure ──► words        of each flight of the scheduled steps
              ──► summary, critical path                          of the step
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launch.report.overlap.alone import Alone, alone_of
from launch.report.overlap.critical_path import critical_path
from launch.report.overlap.explanation import why
from launch.report.overlap.exposure import exposure_inputs, parts_of
from launch.report.overlap.model import (
    DeviceStep,
    MeasuredRun,
    MeasuredStep,
    OverlapReport,
    Site,
)
from launch.report.overlap.notes import notes_of
from launch.report.overlap.read import TraceError
from launch.report.overlap.slowdown import with_slowdown
from launch.report.overlap.summary import collectives_of, devices_of, totals_of


def overlap_report(run: MeasuredRun) -> OverlapReport:
    """Return the report. Raises TraceError if the run has no scheduled step."""
    scheduled = [step for step in run.steps if not step.blocking]
    if not scheduled:
        raise TraceError(f"{run.module}: no step of the trace ran as it was scheduled")
    reference_steps = typical([step for step in run.steps if step.blocking])
    alone = alone_of(run, reference_steps)
    steps = tuple(
        step if step.blocking else _explained(step, run.sites, alone) for step in run.steps
    )
    run = replace(run, steps=steps)
    chosen = typical([step for step in steps if not step.blocking])
    shown = chosen[(len(chosen) - 1) // 2]
    totals = totals_of(chosen, reference_steps)
    collectives = collectives_of(run, chosen, alone)
    effective = sum(one.effective for one in collectives)
    gained = 0.0
    if totals.reference_seconds is not None:
        gained = totals.reference_seconds - totals.seconds
    return OverlapReport(
        run=run,
        reference=alone.reference,
        typical=tuple(step.number for step in chosen),
        typical_reference=tuple(step.number for step in reference_steps),
        shown=shown.number,
        seconds=totals.seconds,
        reference_seconds=totals.reference_seconds,
        compute=totals.compute,
        slowed=totals.slowed,
        exposed=totals.exposed,
        hidden=totals.hidden,
        other=totals.seconds - totals.compute - totals.exposed,
        effective=effective,
        elsewhere=gained - effective if totals.reference_seconds is not None else 0.0,
        collectives=collectives,
        devices=devices_of(run, chosen),
        path=critical_path(shown),
        notes=(*run.notes, *notes_of(run, chosen, alone, totals)),
    )


def typical(steps: Sequence[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Return the middle half of the steps by length, the shortest first, which leaves out disturbed steps."""
    by_length = sorted(steps, key=lambda step: step.seconds)
    cut = len(steps) // 4
    return tuple(by_length[cut : len(steps) - cut])


def _explained(step: MeasuredStep, sites: Mapping[str, Site], alone: Alone) -> MeasuredStep:
    slowed = tuple(with_slowdown(device, alone) for device in step.devices)
    return replace(step, devices=tuple(_with_reasons(one, slowed, sites, alone) for one in slowed))


def _with_reasons(
    device: DeviceStep, devices: Sequence[DeviceStep], sites: Mapping[str, Site], alone: Alone
) -> DeviceStep:
    async_intervals = []
    for async_interval in device.async_intervals:
        site = sites[async_interval.name]
        found = exposure_inputs(async_interval, device, sites, alone)
        async_interval = replace(async_interval, parts=parts_of(async_interval, site, found))
        async_intervals.append(
            replace(async_interval, why=why(async_interval, site, found, devices))
        )
    return replace(device, async_intervals=tuple(async_intervals))
