"""Device coordinates as instructions, against the digits of the device number."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from partitioner.devices.axes import DeviceAxes
from partitioner.devices.coordinate import device_coordinate
from spmd.builder import Builder
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Opcode
from spmd.shape import PrimitiveType


def module_for(axes: DeviceAxes, which: tuple[int, ...]) -> HloModule:
    module = HloModule("coordinate")
    module.num_partitions = axes.num_devices
    module.entry = module.new_computation("main")
    b = Builder(module.entry)
    module.entry.root = device_coordinate(
        b, axes, b.convert(b.partition_id(), PrimitiveType.S32), which
    )
    return module


@pytest.mark.parametrize("sizes", [(), (3,), (2, 2), (2, 3, 2), (2, 2, 2, 2)])
def test_every_list_of_axes(sizes: tuple[int, ...]) -> None:
    axes = DeviceAxes(sizes)
    count = math.prod(sizes)
    digits = np.indices(sizes).reshape(len(sizes), count)
    for length in range(len(sizes) + 1):
        for which in itertools.permutations(range(len(sizes)), length):
            want = np.zeros(count, dtype=np.int64)
            for axis in which:
                want = want * sizes[axis] + digits[axis]
            got = evaluate_partitions(module_for(axes, which), [[]] * count)
            assert [int(x) for (x,) in got] == want.tolist()


def test_all_axes_are_the_device_number_itself() -> None:
    module = module_for(DeviceAxes((2, 4, 2)), (0, 1, 2))
    assert module.entry.root.opcode is Opcode.CONVERT


def test_neighbouring_axes_are_one_digit() -> None:
    module = module_for(DeviceAxes((2, 4, 2)), (1, 2))
    assert module.entry.root.opcode is Opcode.REMAINDER
    assert module.entry.root.operand(0).opcode is Opcode.CONVERT
