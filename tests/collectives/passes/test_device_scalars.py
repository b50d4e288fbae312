"""Scalars that differ by device: read without running, and written, as the lock-step evaluator has them."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.passes.device_scalars import (
    flag_by_device,
    position_scalar,
    scalar_by_device,
    values_by_device,
)
from spmd.device import IotaTile
from spmd.device_groups import DeviceGroups
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.literal import Literal
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.devices import several_devices
from tests.spmd.passes.triggers.programs import Program

S32, U32 = PrimitiveType.S32, PrimitiveType.U32
_ARITHMETIC = (
    Opcode.ADD,
    Opcode.SUBTRACT,
    Opcode.MULTIPLY,
    Opcode.DIVIDE,
    Opcode.REMAINDER,
    Opcode.MINIMUM,
    Opcode.MAXIMUM,
    Opcode.AND,
    Opcode.XOR,
)


def random_scalar(p: Program, depth: int) -> HloInstruction:
    """An s32 of device ids, constants, tables and arithmetic."""
    b = p.b
    if depth == 0 or p.chance(0.15):
        leaf = p.choose((b.partition_id, b.replica_id, lambda: b.scalar(S32, p.integer(-3, 9))))
        return b.convert(leaf(), S32)
    structural_key = p.choose(("arithmetic",) * 3 + ("table", "select", "grid", "narrow"))
    x = random_scalar(p, depth - 1)
    if structural_key == "arithmetic":
        return b.binary(p.choose(_ARITHMETIC), x, random_scalar(p, depth - 1))
    if structural_key == "table":
        values = np.asarray(p.rng.integers(-4, 20, 5), np.int32)
        table = b.constant(Literal.of(ArrayShape(S32, (5,)), values))
        return b.reshape(b.dynamic_slice(table, [x], (1,)), ())
    if structural_key == "select":
        chosen = b.compare(x, b.scalar(S32, 2), p.choose(("LT", "EQ", "GE")))
        return b.select(chosen, x, random_scalar(p, depth - 1))
    if structural_key == "narrow":
        return b.convert(b.convert(x, PrimitiveType.S8), S32)
    grid = b.transpose(b.iota(S32, (4, 6), 1), (0, 1)) if p.chance(0.2) else b.iota(S32, (4, 6), 1)
    part = b.dynamic_slice(grid, [x, random_scalar(p, depth - 1)], (1, 2))
    return b.reshape(b.slice(b.add(part, b.broadcast_scalar(x, (1, 2))), (0, 1), (1, 2)), ())


def on_devices(module: HloModule) -> list[int]:
    devices = module.num_partitions * module.replica_count
    return [int(outputs[0]) for outputs in evaluate_partitions(module, [[]] * devices)]


@pytest.mark.parametrize("seed", range(60))
def test_values_are_what_devices_compute(seed: int) -> None:
    p = several_devices(np.random.default_rng(seed))
    x = random_scalar(p, 4)
    found = values_by_device(x)
    module = p.module(x)
    if found is None:
        assert any(y.opcode is Opcode.TRANSPOSE for y in module.entry.instructions) or (
            len(module.entry) > 60
        )
    else:
        assert found.tolist() == on_devices(module)


def test_data_has_no_known_value() -> None:
    p = several_devices(np.random.default_rng(0))
    data = p.parameter(ArrayShape(S32, ()))
    assert values_by_device(p.b.add(data, p.b.scalar(S32, 1))) is None
    assert values_by_device(p.b.multiply(data, p.b.scalar(S32, 0))) is None


def test_an_unstated_number_of_devices_tells_nothing() -> None:
    p = Program(np.random.default_rng(0))
    assert values_by_device(p.b.partition_id()) is None


def test_a_long_chain_is_given_up() -> None:
    p = several_devices(np.random.default_rng(0))
    x = p.b.convert(p.b.partition_id(), S32)
    for _ in range(5000):
        x = p.b.add(x, p.b.scalar(S32, 1))
    assert values_by_device(x) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_what_is_read(seed: int) -> None:
    p = several_devices(np.random.default_rng(seed))
    devices = p.result.num_partitions * p.result.replica_count
    start, step = p.integer(-2, 5), p.integer(-2, 2)
    values = [start + step * i for i in range(devices)]
    if p.chance():
        values = p.shuffled(values)
    x = scalar_by_device(p.b, values)
    flags = [value > 1 for value in values]
    found = values_by_device(flag_by_device(p.b, flags))
    assert found is not None
    assert found.astype(bool).tolist() == flags
    assert on_devices(p.module(x)) == values


@pytest.mark.parametrize(
    "groups",
    [
        IotaTile((1, 12), (12,), (0,)),
        IotaTile((12, 1), (12,), (0,)),
        IotaTile((4, 3), (3, 4), (1, 0)),
        IotaTile((2, 6), (2, 2, 3), (1, 2, 0)),
        IotaTile((2, 6), (3, 2, 2), (2, 0, 1)),
        [[0, 5, 2], [1, 3, 4], [6, 7, 11], [10, 9, 8]],
    ],
)
@pytest.mark.parametrize(("partitions", "replicas"), [(12, 1), (4, 3), (1, 12)])
def test_a_place_is_written_as_digits_or_looked_up(
    groups: IotaTile | list[list[int]], partitions: int, replicas: int
) -> None:
    p = Program(np.random.default_rng(0), partitions, replicas)
    listed = groups.ids().tolist() if isinstance(groups, IotaTile) else groups
    known = DeviceGroups.of(listed)
    assert (known.lines is not None) is isinstance(groups, IotaTile)
    place = {device: n for group in listed for n, device in enumerate(group)}
    for shift in (0, 2, -1):
        x = position_scalar(p.b, known, shift=shift, times=5, start=7)
        expected = [(place[d] + shift) % len(listed[0]) * 5 + 7 for d in range(12)]
        found = values_by_device(x)
        assert found is not None
        assert found.tolist() == expected
        assert on_devices(p.module(x)) == expected
