"""A small report by hand: two devices, a scheduled and a blocking step, a loop, an all-gather and a permute."""

from __future__ import annotations

from dataclasses import replace

from launch.report.overlap.model import (
    AsyncInterval,
    CollectiveOverlap,
    DeviceOverlap,
    DeviceStep,
    Instruction,
    MeasuredRun,
    MeasuredStep,
    OverlapReport,
    PathPiece,
    Reason,
    Reference,
    Site,
    Slice,
)

HOSTILE = "</script><img src=x onerror=alert(1)>@DATA@<!--"
US = 1e-6

_GATHER = Site("ag", "all-gather", 4096, ((0, 1),), exchanges=("network",))
_PERMUTE = Site("cp", "collective-permute", 64, pairs=((0, 1),))
_INSTRUCTIONS = (
    Instruction("ag", "all-gather-start", "step/gather", "step.py:3"),
    Instruction("cp", "collective-permute"),
    Instruction("dot.1", "dot", HOSTILE, "step.py:7"),
    Instruction("while.2", "while"),
    Instruction("loop_add_fusion", "fusion"),
)


def report() -> OverlapReport:
    steps = (_step(0, False, 0.0), _step(1, True, 100 * US))
    run = MeasuredRun(
        f"step{HOSTILE}",
        "tcp-cluster",
        steps,
        {one.name: one for one in _INSTRUCTIONS},
        {"ag": _GATHER, "cp": _PERMUTE},
        (0.0, 2 * US),
        {"step_s": 35 * US, "kernels": {"dot.1": 7 * US}},
    )
    gather = CollectiveOverlap(
        _GATHER,
        1.0,
        12 * US,
        11 * US,
        9 * US,
        15 * US,
        5 * US,
        1 * US,
        5 * US,
        ((Reason.LATE_PEER, 6 * US), (Reason.DEPENDENCY, 3 * US)),
        ((1, 6 * US),),
        "device 1 came 6 us later",
        10 * US,
        4 * US,
        "dependency",
    )
    devices = tuple(
        DeviceOverlap(device, 40 * US, 30 * US, 1 * US, 9 * US, 0.0, None) for device in range(2)
    )
    path = (
        PathPiece(1, "compute", "dot.1", 0.0, 10 * US),
        PathPiece(0, "transfer", "ag", 10 * US, 22 * US),
    )
    return OverlapReport(
        run=run,
        reference=Reference.BLOCKING_STEPS,
        typical=(0,),
        typical_reference=(1,),
        shown=0,
        seconds=40 * US,
        reference_seconds=46 * US,
        compute=30 * US,
        slowed=1 * US,
        exposed=9 * US,
        hidden=5 * US,
        other=1 * US,
        effective=5 * US,
        elsewhere=1 * US,
        collectives=(gather,),
        devices=devices,
        path=path,
        notes=("clocks were compared once",),
    )


def with_steps(count: int) -> OverlapReport:
    """The same with ``count`` scheduled steps, the last of which is shown."""
    one = report()
    steps = tuple(_step(number, False, 100 * number * US) for number in range(count))
    typical = tuple(range(count))
    return replace(
        one,
        run=replace(one.run, steps=steps),
        typical=typical,
        shown=count - 1,
        typical_reference=(),
    )


def _step(number: int, blocking: bool, at: float) -> MeasuredStep:
    devices = tuple(_device(device, at + 2 * US * device) for device in range(2))
    return MeasuredStep(number, blocking, devices)


def _device(device: int, at: float) -> DeviceStep:
    """Return the step of a device, in microseconds from ``at``.

    A sequence is around all its thunks, and another one around the permute's start and done.
    """

    def piece(name: str, kind: str, start: float, end: float, depth: int) -> Slice:
        leaf = kind not in ("ThunkSequence", "While")
        reference = 9 * US if name == "dot.1" else None
        times = (at + start * US, at + end * US)
        return Slice(name, kind, *times, bytes=256, depth=depth, leaf=leaf, reference=reference)

    slices = (
        piece("step", "ThunkSequence", 0, 40, 0),
        piece("ag", "CollectiveStart", 0, 1, 1),
        piece("dot.1", "Kernel", 1, 11, 1),
        piece("ag", "CollectiveDone", 11, 20, 1),
        piece("while.2", "While", 20, 32, 1),
        piece("body", "ThunkSequence", 20, 26, 2),
        piece("loop_add_fusion", "Kernel", 20, 26, 3),
        piece("body", "ThunkSequence", 26, 32, 2),
        piece("loop_add_fusion", "Kernel", 26, 32, 3),
        piece("cp", "ThunkSequence", 33, 40, 1),
        piece("cp", "CollectiveStart", 33, 34, 2),
        piece("cp", "CollectiveDone", 34, 40, 2),
    )
    arrived = max(at, at + (2 - 2 * device) * US)
    gather = AsyncInterval(
        name="ag",
        execution=0,
        device=device,
        issued=at,
        issue_end=at + 1 * US,
        arrived=arrived,
        landed=at + 19 * US,
        wait_begin=at + 11 * US,
        wait_end=at + 20 * US,
        last=1,
        members=(0, 1),
        hidden=5 * US,
        parts=((Reason.LATE_PEER, 6 * US), (Reason.DEPENDENCY, 3 * US)),
        why=f"too late: {HOSTILE}",
    )
    permute = AsyncInterval(
        name="cp",
        execution=0,
        device=device,
        issued=at + 33 * US,
        issue_end=at + 34 * US,
        arrived=at + 35 * US,
        landed=at + 39 * US,
        wait_begin=at + 34 * US,
        wait_end=at + 40 * US,
        last=1,
        members=(0, 1),
    )
    return DeviceStep(device, at, at + 40 * US, slices, (gather, permute))
