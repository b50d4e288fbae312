"""Per op: the partitioned program equals the unpartitioned one, over random sizes, shardings and meshes.

Each op is a small HLO text with random sizes (uneven ones too); parameters and root get random shardings, parameters'
padding holds nan. Values are small whole numbers, so that sums are exact and results must be equal bit for bit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import spmd
from partitioner.spmd_partitioner import partition_module
from tests.differential.equivalence import check_partitioned
from tests.differential.op_programs import OPS, Draw
from tests.differential.random_arrays import annotate, random_array

MESHES = ((2,), (4,), (2, 2), (3,), (4, 2))
PER_MESH = 6

#: Ops that only move elements do so for every type.
MOVING = [
    "broadcast",
    "concatenate",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather_points",
    "gather_windows",
    "pad",
    "reshape",
    "reverse",
    "roll",
    "static_slice",
    "strided_slice",
    "take_along_axis",
    "take_rows",
    "transpose",
]
TYPES = ("pred", "u8", "s64", "bf16", "c64")


@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("name", MOVING)
def test_elements_of_any_type_are_moved(name: str, element_type: str) -> None:
    for trial, mesh in enumerate(MESHES):
        check_one(name, mesh, 100 + trial, element_type)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_partitioned_op_equals_the_whole_one(name: str, mesh: tuple[int, ...]) -> None:
    for trial in range(PER_MESH):
        check_one(name, mesh, trial)


@pytest.mark.parametrize("mesh", [(4,), (2, 2)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_fewer_elements_than_shards(name: str, mesh: tuple[int, ...]) -> None:
    """Some devices hold padding alone."""
    check_one(name, mesh, 200, sizes=(1, 2, 3), crowded=True)


#: Their generators choose an index or a part of each dimension.
NEED_ELEMENTS = {
    "dynamic_slice",
    "dynamic_update_slice",
    "gather_points",
    "static_slice",
    "take_along_axis",
    "take_rows",
}


@pytest.mark.parametrize("name", [name for name in OPS if name not in NEED_ELEMENTS])
def test_empty_dimensions(name: str) -> None:
    check_one(name, (2, 2), 300, sizes=(0, 1, 4), crowded=True)


def check_one(
    name: str,
    mesh: tuple[int, ...],
    trial: int,
    element_type: str = "f32",
    *,
    sizes: tuple[int, ...] = Draw.sizes,
    crowded: bool = False,
) -> None:
    rng = np.random.default_rng([sum(name.encode()), *mesh, trial])
    reducers, entry = OPS[name](Draw(rng, sizes)).split("\nENTRY", 1)
    module = spmd.parse(f"{reducers}\nENTRY{entry.replace('f32', element_type)}")
    annotate(module, rng, mesh, crowded=crowded)
    devices = math.prod(mesh)
    inputs = [random_array(rng, p.array_shape) for p in module.entry.parameters]
    partitioned = partition_module(module, devices)
    check_partitioned(module, partitioned, devices, inputs)
