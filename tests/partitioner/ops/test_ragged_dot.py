"""Ragged products of arrays that are split along any dimension are those of the logical program."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from tests.differential.equivalence import check_equivalence, check_execution
from tests.runtime.gpu.triton.ragged import CASES, Ragged

NAMES = (
    "rows",
    "rows of a batch",
    "rows, and others",
    "depth",
    "depth of a batch",
    "depth of steps",
)


def split_by_two(case: Ragged, operand: int, dim: int) -> str:
    """The program of ``case`` whose ``operand`` is split along ``dim``, also if the size is odd."""
    rank = len((case.lhs, case.rhs, np.array(case.groups).shape)[operand])
    tiles = ",".join("2" if d == dim else "1" for d in range(rank))
    parameter = f"parameter({operand})"
    return case.text.replace(parameter, f"{parameter}, sharding={{devices=[{tiles}]<=[2]}}")


@pytest.mark.parametrize("name", NAMES)
def test_every_split(name: str) -> None:
    case = CASES[name]
    inputs = [np.round(one) if one.dtype == np.float32 else one for one in case.inputs()]
    for operand, array in enumerate(inputs):
        for dim in range(array.ndim):
            text = split_by_two(case, operand, dim)
            check_equivalence(spmd.parse(text), 2, inputs)
            check_execution(spmd.parse(text), 2, inputs)


def test_gradients_of_weights_are_computed_in_parts() -> None:
    text = split_by_two(CASES["depth"], 1, 1)
    partitioned = spmd.partition(spmd.parse(text), 2)
    (product,) = [x for x in partitioned.entry.instructions if x.opcode.value == "ragged-dot"]
    assert product.dims == (4, 16, 12)
