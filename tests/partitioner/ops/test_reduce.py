"""Sharding rules of reductions and windows, and what reducers compute."""

from __future__ import annotations

import pytest
from rule_notation import rule_text

import spmd
from partitioner.ops.reducers import chooses_an_argument, reduction_of
from spmd.device import ReductionKind
from spmd.hlo import HloComputation

SUM = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"
ARGMAX = """f { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
  p = pred[] compare(v, w), direction=GE
  x = f32[] select(p, v, w)
  k = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k) }"""


def module(*parts: str) -> str:
    return "HloModule m\n" + "\n".join(parts)


def computation(text: str) -> HloComputation:
    return spmd.parse(module(text)).entry


RULES = {
    module(
        SUM,
        "ENTRY e { x = f32[2,3,4] parameter(0) z = f32[] parameter(1)",
        "ROOT r = f32[3] reduce(x, z), dimensions={0,2}, to_apply=add }",
    ): "abc,->b a:sum c:sum once:1",
    module(
        ARGMAX,
        "ENTRY e { x = f32[2,3] parameter(0) i = s32[2,3] parameter(1)",
        "z = f32[] parameter(2) k = s32[] parameter(3)",
        "ROOT r = (f32[2], s32[2]) reduce(x, i, z, k), dimensions={1}, to_apply=f }",
    ): "aB,aC,,->a,a",
    module(
        SUM,
        "ENTRY e { x = f32[4,6] parameter(0) z = f32[] parameter(1)",
        "ROOT r = f32[4,5] reduce-window(x, z), window={size=1x2}, to_apply=add }",
    ): "ab~,->ab~",
    module(
        SUM,
        "ge { a = f32[] parameter(0) b = f32[] parameter(1)",
        "ROOT r = pred[] compare(a, b), direction=GE }",
        "ENTRY e { x = f32[4,6] parameter(0) s = f32[4,3] parameter(1) z = f32[] parameter(2)",
        "ROOT r = f32[4,6] select-and-scatter(x, s, z), window={size=1x2 stride=1x2}, select=ge, scatter=add }",
    ): "a(bC),ab,->a(bC)",
}


@pytest.mark.parametrize("text", RULES)
def test_rule(text: str) -> None:
    assert rule_text(text) == RULES[text]


def reducer(*body: str, parameters: str = "f32[] f32[]") -> str:
    types = parameters.split()
    lines = [f"{'abcd'[i]} = {t} parameter({i})" for i, t in enumerate(types)]
    return "f { " + "\n  ".join([*lines, *body]) + " }"


FOUR = "f32[] f32[] f32[] f32[]"
PAIR = "ROOT t = (f32[], f32[]) tuple(x, y)"
REDUCERS = {
    reducer("ROOT r = f32[] add(a, b)"): ReductionKind.SUM,
    reducer("ROOT r = f32[] maximum(b, a)"): ReductionKind.MAX,
    reducer("ROOT r = pred[] add(a, b)", parameters="pred[] pred[]"): ReductionKind.OR,
    reducer("ROOT r = pred[] minimum(a, b)", parameters="pred[] pred[]"): ReductionKind.AND,
    reducer(
        "s = f32[] add(a, b)",
        'ROOT r = f32[] custom-call(s), custom_call_target="Sharding", sharding={replicated}',
    ): ReductionKind.SUM,
    reducer(
        "x = f32[] convert(a)",
        "y = f32[] convert(b)",
        "s = f32[] add(x, y)",
        "ROOT r = bf16[] convert(s)",
        parameters="bf16[] bf16[]",
    ): ReductionKind.SUM,
    reducer("ROOT r = f32[] add(a, a)"): None,
    reducer("ROOT r = f32[] subtract(a, b)"): None,
    reducer("x = f32[] add(a, c)", "y = f32[] add(d, b)", PAIR, parameters=FOUR): ReductionKind.SUM,
    reducer("x = f32[] add(a, c)", "y = f32[] maximum(b, d)", PAIR, parameters=FOUR): None,
    reducer("x = f32[] add(a, d)", "y = f32[] add(b, c)", PAIR, parameters=FOUR): None,
    ARGMAX: None,
}


@pytest.mark.parametrize("text", REDUCERS)
def test_kind_of_a_reducer(text: str) -> None:
    assert reduction_of(computation(text)) is REDUCERS[text]


def test_a_choice_is_told_from_arithmetic() -> None:
    assert chooses_an_argument(computation(ARGMAX))
    assert not chooses_an_argument(computation(ARGMAX.replace("select(p, i, j)", "add(i, j)")))
