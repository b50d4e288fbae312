"""Cumulative sums, products, minima and maxima along sharded dimensions: right, and without a halo."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner.spmd_partitioner import partition_module
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule, Opcode
from spmd.text.parser import parse_module
from tests.differential.equivalence import check_equivalence

OPERATIONS = {
    "add": ("f32", "0"),
    "multiply": ("f32", "1"),
    "maximum": ("f32", "-inf"),
    "minimum": ("s32", "2147483647"),
    "xor": ("s32", "0"),
}


def scan(
    size: int,
    devices: int,
    operation: str = "add",
    *,
    is_forward: bool = True,
    init: str = "",
    window: int = 0,
) -> HloModule:
    kind, neutral = OPERATIONS[operation]
    count = window or size
    pad = f"0_0x{count - 1}_0" if is_forward else f"0_0x0_{count - 1}"
    split = f"sharding={{devices=[1,{devices}]<=[{devices}]}}"
    return parse_module(
        f"""HloModule scan
combine {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT r = {kind}[] {operation}(a, b) }}
ENTRY e {{
  x = {kind}[3,{size}] parameter(0), {split}
  z = {kind}[] constant({init or neutral})
  ROOT r = {kind}[3,{size}] reduce-window(x, z), window={{size=1x{count} pad={pad}}}, to_apply=combine, {split}
}}"""
    )


def numbers(module: HloModule) -> np.ndarray:
    shape = module.entry.parameters[0].array_shape
    drawn = np.random.default_rng(5).standard_normal(shape.dims) * 3
    return drawn.astype(shape.element_type.numpy)


@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("size", "devices"), [(12, 4), (13, 4), (5, 4), (3, 8), (1, 2), (16, 8)])
def test_every_scan_is_right(size: int, devices: int, operation: str, is_forward: bool) -> None:
    module = scan(size, devices, operation, is_forward=is_forward)
    check_equivalence(module, devices, [numbers(module)])


@pytest.mark.parametrize("is_forward", [True, False])
def test_one_element_of_each_row_is_sent(is_forward: bool) -> None:
    program = partition_module(scan(64, 4, is_forward=is_forward), 4)
    cost = module_cost(program)
    assert list(cost.collectives) == ["all-gather"]
    assert cost.wire_bytes == 3 * 3 * 4
    (local,) = program.entry.with_opcode(Opcode.REDUCE_WINDOW)
    assert local.dims == (3, 16)


@pytest.mark.parametrize("size", [12, 13])
@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(("init", "window"), [("2.5", 0), ("0", 5), ("2.5", 5)])
def test_other_starts_and_windows_are_right_as_well(
    init: str, window: int, size: int, is_forward: bool
) -> None:
    """A start that is not neutral counts once for each window, and not for each position outside the array."""
    module = scan(size, 4, init=init, window=window, is_forward=is_forward)
    check_equivalence(module, 4, [numbers(module)])


def test_a_scan_beside_another_split_dimension_is_right() -> None:
    text = """HloModule scan
combine { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[5,10] parameter(0), sharding={devices=[2,4]<=[8]}
  z = f32[] constant(0)
  ROOT r = f32[5,10] reduce-window(x, z), window={size=1x10 pad=0_0x9_0}, to_apply=combine, sharding={devices=[2,4]<=[8]}
}"""
    module = parse_module(text)
    check_equivalence(module, 8, [numbers(module)])
