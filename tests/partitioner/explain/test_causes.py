from __future__ import annotations

import explain_modules

import spmd
from partitioner.explain.causes import axis_chain
from partitioner.explain.explain import explain_module
from partitioner.explain.report import Explanation
from partitioner.spmd_partitioner import partitioned
from spmd.hlo import HloModule

CHAIN = """
HloModule chain, num_partitions=2
ENTRY main {
  x = f32[8,4]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  w = f32[4,6]{1,0} parameter(1)
  product = f32[8,6]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  back = f32[8,6]{1,0} tanh(product)
  ROOT turned = f32[6,8]{1,0} transpose(back), dimensions={1,0}
}
"""


def explain(text: str) -> Explanation:
    module = spmd.parse(text)
    return explain_module(module, module.num_partitions, max_tried=0)


def because(explanation: Explanation, name: str) -> tuple[str, ...]:
    (found,) = [i.because for i in explanation.instructions if i.name == name]
    return found


def test_a_chain_leads_back_to_the_parameter_op_by_op() -> None:
    assert because(explain(CHAIN), "turned") == (
        "dimension 1 split over axis0[2]: annotation of parameter x -> product -> back -> turned",
    )


def test_a_constraint_gives_its_sharding_backwards_too() -> None:
    explanation = explain(explain_modules.GATHERED)
    assert because(explanation, "z") == ("dimension 0 split over axis0[4]: annotation of result",)


def test_what_no_annotation_reaches_says_so() -> None:
    explanation = explain(explain_modules.CONTRACTED)
    assert because(explanation, "result") == ("no split: no annotation reaches it",)


def test_a_value_replicated_by_an_annotation_says_by_which() -> None:
    assert because(explain(explain_modules.GATHERED), "whole") == ("no split: annotation of whole",)


def test_every_axis_of_a_corpus_module_leads_back_to_an_annotation(cases: object) -> None:
    module: HloModule = spmd.load(f"{cases}/gpt_dp2tp2/module.hlo")
    driver = partitioned(module, 4)
    annotated = {
        f"{kind}{i.name}"
        for i in driver.module.all_instructions()
        for kind in ("", "parameter ", "root ")
        if i.sharding is not None or i.annotations.frontend("xla.sdy.sharding") is not None
    }
    checked = 0
    for instruction in driver.graph.instructions():
        for sharding in driver.graph.shardings(instruction):
            for axis in (
                () if sharding is None else [a for dim_axes in sharding.dims for a in dim_axes]
            ):
                assert sharding is not None
                assert axis_chain(sharding, axis)[0] in annotated
                checked += 1
    assert checked > 500
