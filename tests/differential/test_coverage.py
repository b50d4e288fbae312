"""The counts of what random programs try: read rightly, complete, and the same whoever counts."""

from __future__ import annotations

import json

import partitioner.ops  # noqa: F401 - fills the registries
import spmd
from partitioner.registry import PARTITIONERS, PROPAGATORS, SHARDING_RULES
from tests.differential.cells import (
    CELLS,
    EVEN,
    IMPOSSIBLE,
    NOT_COUNTED,
    PARTIAL,
    SMALL,
    UNEVEN,
    Cell,
    every_cell,
    impossible,
)
from tests.differential.coverage import FEATURES, Counts, cells_of, features_of
from tests.differential.factors import KINDS, factors_of, row_of
from tests.differential.fuzz import Task, _outcomes
from tests.differential.generator.steering import aims_of
from tests.strategies import generate

PRODUCT = """HloModule m
ENTRY main {
  x = f32[8,5] parameter(0), sharding={devices=[2,2]<=[4]}
  y = f32[5,3] parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  ROOT r = f32[8,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[1,4]<=[4]}
}
"""


def test_cells_of_a_product() -> None:
    found = {(c.kind, c.column) for c in cells_of(spmd.parse(PRODUCT), 4) if c.row == "dot"}
    assert {("pass-through", EVEN), ("reduction", UNEVEN), ("reduction", PARTIAL)} <= found
    assert ("reduction", SMALL) not in found
    parameters = {
        (c.kind, c.column) for c in cells_of(spmd.parse(PRODUCT), 4) if c.row == "parameter"
    }
    assert parameters == {("pass-through", column) for column in (EVEN, UNEVEN, PARTIAL)}


def test_a_size_below_the_shards() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[3] parameter(0), sharding={devices=[4]<=[4]}
  ROOT r = f32[3] negate(x), sharding={devices=[4]<=[4]}
}
"""
    assert Cell("negate", "pass-through", SMALL) in cells_of(spmd.parse(text), 4)


def test_features_are_read_from_the_text() -> None:
    assert "transposed iota" in features_of(PRODUCT)
    assert "meshes whose strides do not nest" not in features_of(PRODUCT)
    other = PRODUCT.replace("{devices=[1,4]<=[4]}", "{devices=[1,3]<=[3]}")
    assert "meshes whose strides do not nest" in features_of(other)


def test_every_op_is_counted_or_says_why_not() -> None:
    known = {o.value for r in (SHARDING_RULES, PARTITIONERS, PROPAGATORS) for o in r}
    counted = {row for row in KINDS if not row.startswith("custom-call")} | {"custom-call"}
    assert known - counted - set(NOT_COUNTED) == set()
    assert not counted & set(NOT_COUNTED)


def test_what_cannot_occur_names_rows_and_kinds() -> None:
    kinds = {kind for row in KINDS for kind in KINDS[row]}
    for row, kind, _ in IMPOSSIBLE:
        assert row in ("", *KINDS)
        assert kind in ("", *kinds)
    assert set(CELLS) == {cell for cell in every_cell() if impossible(cell) is None}


def test_kinds_are_those_that_the_table_has() -> None:
    for seed in range(60):
        for instruction in generate(seed).module.all_instructions():
            for factor in factors_of(instruction):
                assert factor.kind in KINDS[row_of(instruction)], instruction


def test_seeds_aim_at_every_cell_that_an_operation_writes() -> None:
    aimed = {cell for seed in range(len(CELLS)) for cell in aims_of(seed)}
    missed = {cell.row for cell in CELLS} - {cell.row for cell in aimed}
    # Everything has parameters, and annotations are put everywhere.
    assert missed == {"parameter", "custom-call Sharding", "custom-call xla.sdy.FuncResultSharding"}


def test_two_processes_count_as_one_does() -> None:
    tasks = [Task(seed, "", "partitioned", counts=True) for seed in range(8)]
    assert list(_outcomes(tasks, 1)) == list(_outcomes(tasks, 2))


def test_the_table_holds_every_cell() -> None:
    counts = Counts(programs=1)
    counts.cells[Cell("dot", "reduction", UNEVEN)] = 7
    assert Cell("dot", "reduction", UNEVEN) not in counts.below(5)
    assert Cell("dot", "reduction", EVEN) in counts.below(5)
    text = counts.as_markdown("command")
    assert "| dot | reduction | 0 | 7 | 0 | 0 |" in text
    assert all(name in text for name in FEATURES)
    assert len(json.loads(counts.as_json("command"))["cells"]) == len(every_cell())
