"""Edges of the graph of a schedule: what must not run after a value has been overwritten."""

from __future__ import annotations

import pytest

from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.schedule_graph import build_graph
from collectives.schedule.window_costs import WindowCosts
from spmd.analysis.live_bytes import ModuleBytes
from spmd.text.parser import parse_module
from tests.collectives.schedule.table_estimator import TableEstimator

#: The weight is read by a product, and replaced by a fusion that does not depend on that product.
UPDATE = """HloModule m, is_scheduled=true{alias}
update {{
  p = f32[4,4] parameter(0)
  q = f32[4,4] parameter(1)
  ROOT d = f32[4,4] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY e {{
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  {first}
  {second}
  ROOT r = (f32[4,4], f32[4,4]) tuple(old, new)
}}
"""
OLD = "old = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
NEW = "new = f32[4,4] fusion(w, x), kind=kOutput, calls=update"
ALIAS = ", input_output_alias={ {1}: (1, {}, may-alias) }"


@pytest.mark.parametrize(
    ("alias", "first", "second", "is_after"),
    [(ALIAS, OLD, NEW, True), ("", OLD, NEW, False), (ALIAS, NEW, OLD, False)],
    ids=["returned in place", "returned elsewhere", "read later anyway"],
)
def test_a_parameter_is_replaced_after_its_readers(
    alias: str, first: str, second: str, is_after: bool
) -> None:
    module = parse_module(UPDATE.format(alias=alias, first=first, second=second))
    entry = module.entry
    costs = WindowCosts(TableEstimator(), GroupOverlap(module))
    graph = build_graph(entry, costs, ModuleBytes.of(module).buffers[entry])
    node = {inside[0].name: n for n, inside in enumerate(graph.members)}
    assert (node["old"] in graph.before[node["new"]]) is is_after


def test_a_parameter_that_nothing_reads_may_be_replaced() -> None:
    text = UPDATE.format(alias=ALIAS.replace("(1,", "(2,"), first=OLD, second=NEW)
    module = parse_module(text.replace("ENTRY e {", "ENTRY e {\n  unread = f32[4,4] parameter(2)"))
    entry = module.entry
    costs = WindowCosts(TableEstimator(), GroupOverlap(module))
    graph = build_graph(entry, costs, ModuleBytes.of(module).buffers[entry])
    assert len(graph) == len(entry.instructions)
