"""Index of a device along some axes, as arithmetic on partition-id."""

from __future__ import annotations

from partitioner.devices.axes import Axes, DeviceAxes
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.shape import PrimitiveType


def device_coordinate(
    b: Builder, device_axes: DeviceAxes, partition_id: HloInstruction, axes: Axes
) -> HloInstruction:
    """Return the s32[] index along ``axes`` taken as one axis, major to minor, of the device ``partition_id`` (s32[]).

    Axes that are neighbours in the device number are one digit, so all axes together need no arithmetic.

        axes (2, 4, 2): coordinate (1, 2) is id % 8; (2, 0) is id % 2 * 2 + id / 8
    """
    total: HloInstruction | None = None
    for run in device_axes.runs(axes):
        stride, size = device_axes.stride(run[-1]), device_axes.count(run)
        digit = partition_id
        if stride > 1:
            digit = b.divide(digit, b.scalar(PrimitiveType.S32, stride))
        if stride * size < device_axes.num_devices:
            digit = b.remainder(digit, b.scalar(PrimitiveType.S32, size))
        if total is not None:
            total = b.multiply(total, b.scalar(PrimitiveType.S32, size))
        total = digit if total is None else b.add(total, digit)
    return total if total is not None else b.scalar(PrimitiveType.S32, 0)
