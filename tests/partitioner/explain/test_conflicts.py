from __future__ import annotations

import explain_modules

import spmd
from partitioner.explain.explain import explain_module
from partitioner.explain.report import Conflict


def conflicts(text: str) -> tuple[Conflict, ...]:
    module = spmd.parse(text)
    return explain_module(module, module.num_partitions, tries=0).conflicts


def test_an_axis_that_two_indices_of_an_op_want() -> None:
    (found,) = conflicts(explain_modules.CONTESTED)
    assert (found.op, found.kind, found.winner) == ("product", "axis", "parameter x")
    assert "asked for dimension 1 of product by w" in found.text


def test_an_index_that_two_tensors_split_by_different_axes() -> None:
    (found,) = conflicts(explain_modules.DISAGREEING)
    assert (found.op, found.kind, found.winner) == ("sum", "index", "x")


def test_agreement_is_no_conflict() -> None:
    assert conflicts(explain_modules.CONTRACTED) == ()
