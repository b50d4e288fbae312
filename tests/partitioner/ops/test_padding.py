"""Padding is masked where it can reach a result, and nowhere else."""

from __future__ import annotations

import pytest

import spmd
from spmd.hlo import HloModule, Opcode
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.pipeline import run_passes

SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"
#: 9 rows over 4 devices lie in tiles of 3: the last device holds padding alone.
UNEVEN = "sharding={devices=[4,1]<=[4]}"
EVEN = "sharding={devices=[1,4]<=[4]}"


def partitioned(*body: str, sharding: str = UNEVEN) -> HloModule:
    lines = (f"x = f32[9,8] parameter(0), {sharding}", *body)
    text = "\n".join(f"  {line}" for line in lines)
    return spmd.partition(spmd.parse(f"HloModule m\n{SUM}\nENTRY e {{\n{text}\n}}"), 4)


def masks(module: HloModule) -> int:
    return sum(1 for i in module.all_instructions() if i.opcode is Opcode.SELECT)


@pytest.mark.parametrize(
    "body",
    [
        ("y = f32[9,8] exponential(x)", "ROOT r = f32[9,8] add(x, y)"),
        ("z = f32[] constant(0)", "ROOT r = f32[9] reduce(x, z), dimensions={1}, to_apply=sum"),
        (
            "w = f32[8,5] parameter(1), sharding={replicated}",
            "ROOT r = f32[9,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ),
        ("ROOT r = f32[8,9] transpose(x), dimensions={1,0}",),
        (
            "z = f32[] constant(0)",
            "ROOT r = f32[9,12] pad(x, z), padding=0_0x2_2",
        ),
    ],
    ids=["elementwise", "reduce of rows", "dot of rows", "transpose", "pad of columns"],
)
def test_what_keeps_rows_apart_is_not_masked(body: tuple[str, ...]) -> None:
    assert masks(partitioned(*body)) == 0


def test_a_sum_over_the_rows_is_masked_once_however_many_read_it() -> None:
    module = partitioned(
        "z = f32[] constant(0)",
        "a = f32[8] reduce(x, z), dimensions={0}, to_apply=sum",
        "b = f32[] reduce(x, z), dimensions={0,1}, to_apply=sum",
        "c = f32[8] broadcast(b), dimensions={}",
        "ROOT r = f32[8] add(a, c)",
    )
    run_passes(module, SIMPLIFICATION)
    (mask,) = [i for i in module.all_instructions() if i.opcode is Opcode.SELECT]
    assert mask.dims == (3, 8)


def test_a_contraction_masks_both_sides() -> None:
    """Nan times zero is nan: what a contraction meets must be zero on either side."""
    module = partitioned(
        f"y = f32[9,8] parameter(1), {UNEVEN}",
        "ROOT r = f32[8,8] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    )
    assert masks(module) == 2


def test_even_tiles_are_not_masked() -> None:
    module = partitioned(
        "z = f32[] constant(0)",
        "ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=sum",
        sharding=EVEN,
    )
    assert masks(module) == 0
