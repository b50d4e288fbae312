"""The overlap report for scripts: the keys of `spmd simulate --json`, measured and predicted, and a run's own."""

from __future__ import annotations

from typing import Any

from launch.report.overlap.model import CollectiveOverlap, DeviceOverlap, OverlapReport
from launch.report.overlap.path_shares import PathShare, path_shares


def as_json(report: OverlapReport) -> dict[str, Any]:
    """Return the report as JSON, in seconds and bytes: means over devices and typical steps."""
    run = report.run
    return {
        "module": run.module,
        "topology": run.machine,
        "devices": run.devices,
        "steps": list(report.typical),
        "reference_steps": list(report.typical_reference),
        "reference": report.reference.value,
        "effective_overlap_s": report.effective,
        "measured": {
            "step_s": report.seconds,
            "reference_step_s": report.reference_seconds,
            "compute_s": report.compute - report.slowed,
            "slowed_s": report.slowed,
            "exposed_s": report.exposed,
            "other_s": report.other,
            "communication_s": sum(one.seconds for one in report.collectives),
            "hidden_s": report.hidden,
            "elsewhere_s": report.elsewhere,
        },
        "predicted": run.predicted,
        "collectives": [_collective(one) for one in report.collectives],
        "per_device": [_device(one) for one in report.devices],
        "critical_path": [_share(one) for one in path_shares(report)],
        "clock_uncertainty_s": list(run.clock_uncertainty),
        "notes": list(report.notes),
    }


def _collective(one: CollectiveOverlap) -> dict[str, Any]:
    return {
        "op": one.site.name,
        "kind": one.site.kind,
        "bytes": one.site.bytes,
        "group_size": one.site.group_size,
        "executions": one.executions,
        "time_s": one.seconds,
        "alone_s": one.alone,
        "hidden_s": one.hidden,
        "exposed_s": one.exposed,
        "reference_exposed_s": one.reference_exposed,
        "slowed_s": one.slowed,
        "effective_overlap_s": one.effective,
        "why": one.why,
        "causes": {reason.value: seconds for reason, seconds in one.parts},
        "late": {str(device): seconds for device, seconds in one.late},
        "predicted": None
        if one.predicted is None
        else {
            "time_s": one.predicted,
            "exposed_s": one.predicted_exposed,
            "why": one.predicted_why,
        },
    }


def _device(one: DeviceOverlap) -> dict[str, Any]:
    return {
        "device": one.device,
        "step_s": one.seconds,
        "compute_s": one.compute - one.slowed,
        "slowed_s": one.slowed,
        "exposed_s": one.exposed,
        "awaited_s": one.awaited,
        "stolen_s": one.stolen,
    }


def _share(one: PathShare) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "opcode": one.opcode,
        "source": one.source,
        "seconds": one.seconds,
        "share": one.share,
        "ops": list(one.names),
    }
