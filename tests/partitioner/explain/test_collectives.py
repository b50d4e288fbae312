from __future__ import annotations

from pathlib import Path

import explain_modules
import pytest

import spmd
from partitioner.explain.explain import explain_module
from partitioner.explain.report import CollectiveExplanation, Explanation, LinkModel
from spmd.analysis.cost import module_cost


def explain(text: str) -> Explanation:
    module = spmd.parse(text)
    return explain_module(module, module.num_partitions, max_tried=0)


def only(explanation: Explanation) -> CollectiveExplanation:
    (found,) = explanation.collectives
    return found


def test_a_partial_product_names_the_op_its_states_and_its_line() -> None:
    found = only(explain(explain_modules.CONTRACTED))
    assert (found.kind, found.op, found.value) == ("all-reduce", "product", "product")
    assert found.sharding_to == "{replicated}"
    assert found.sharding_from.endswith("partial sum over axis0[2]")
    assert found.because[0].startswith("partial result of product")
    assert found.source == "model.py:9"
    # 64 x 16 floats, each of two devices sends half and receives half, twice
    assert found.wire_bytes == found.received == found.bound == 64 * 16 * 4


def test_an_annotation_that_gathers_is_named() -> None:
    found = only(explain(explain_modules.GATHERED))
    assert (found.kind, found.op, found.value) == ("all-gather", "whole", "y")
    assert found.because[0] == "y is needed in another sharding: annotation whole"
    assert "y has dimension 0 split over axis0[4]: annotation of parameter x -> y" in found.because
    assert found.wire_bytes == 3 / 4 * 64 * 32 * 4


def test_an_operand_reshard_names_the_op_that_needs_it() -> None:
    found = only(explain(explain_modules.CONTESTED))
    assert (found.op, found.value) == ("product", "w")
    assert found.because[0] == "w is needed in another sharding: operand of product (dot)"


def test_loops_count_their_trips() -> None:
    explanation = explain(explain_modules.LOOPED)
    (inside,) = [c for c in explanation.collectives if c.op == "rows"]
    assert inside.executed == 5
    assert explanation.wire_bytes == sum(c.total_bytes for c in explanation.collectives)


def test_collectives_in_the_program_say_so() -> None:
    text = """
HloModule written, num_partitions=2
add_f32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  x = f32[8]{0} parameter(0), sharding={devices=[2]<=[2]}
  shard = f32[8]{0} custom-call(x), custom_call_target="Sharding", sharding={devices=[2]<=[2]}
  inner = f32[4]{0} custom-call(shard), custom_call_target="SPMDFullToShardShape", sharding={manual}
  total = f32[4]{0} all-reduce(inner), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add_f32
  local = f32[4]{0} custom-call(total), custom_call_target="Sharding", sharding={manual}
  ROOT whole = f32[8]{0} custom-call(local), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}
}
"""
    assert only(explain(text)).because == ("explicit in the program: total",)


def test_times_follow_the_stated_model() -> None:
    module = spmd.parse(explain_modules.CONTRACTED)
    links = LinkModel(latency_s=1e-3, bytes_per_s=4096.0)
    found = only(explain_module(module, 2, links=links, max_tried=0))
    assert found.seconds == pytest.approx(1.001)


@pytest.mark.parametrize(("name", "devices"), [("gpt_dp2tp2", 4), ("kv_decode_dp2tp2", 4)])
def test_bytes_add_up_to_what_the_module_sends(cases: Path, name: str, devices: int) -> None:
    """Counted by the cost analysis, which knows nothing of reshards."""
    module = spmd.load(str(cases / name / "module.hlo"))
    explanation = explain_module(module, devices, max_tried=0)
    cost = module_cost(spmd.partition(module, devices))
    assert explanation.wire_bytes == pytest.approx(cost.wire_bytes)
    assert len(explanation.collectives) == sum(c.count for c in cost.collectives.values())
    assert all(c.op and c.because for c in explanation.collectives)
    sent = [c.total_bytes for c in explanation.collectives]
    assert sent == sorted(sent, reverse=True)
