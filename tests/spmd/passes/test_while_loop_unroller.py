"""Tests of loops that are unrolled whole, and of how long the result may be."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.options import PassOptionError, parse_passes
from spmd.passes.pipeline import Pipeline, run_passes
from spmd.passes.while_loop_unroller import WhileLoopUnroller
from spmd.text.parser import parse_module
from tests.spmd.passes.triggers.check import check_trigger
from tests.spmd.passes.triggers.registry import Trigger
from tests.spmd.passes.triggers.while_loop_unroller import modules

WHOLE = WhileLoopUnroller(factor=0, collectives=False)

#: Three trips around two trips of an inner loop, or around as many as a parameter says.
TEXT = """HloModule t
few {
  s.3 = (s32[], f32[4], s32[]) parameter(0)
  j.3 = s32[] get-tuple-element(s.3), index=0
  most.3 = s32[] INNER
  ROOT c.3 = pred[] compare(j.3, most.3), direction=LT
}
inner {
  s.4 = (s32[], f32[4], s32[]) parameter(0)
  j.4 = s32[] get-tuple-element(s.4), index=0
  x.4 = f32[4] get-tuple-element(s.4), index=1
  n.4 = s32[] get-tuple-element(s.4), index=2
  one.4 = s32[] constant(1)
  next.4 = s32[] add(j.4, one.4)
  k.4 = f32[] convert(j.4)
  ks.4 = f32[4] broadcast(k.4), dimensions={}
  y.4 = f32[4] subtract(ks.4, x.4)
  ROOT r.4 = (s32[], f32[4], s32[]) tuple(next.4, y.4, n.4)
}
cond {
  s.1 = (s32[], f32[4], s32[], f32[4]) parameter(0)
  i.1 = s32[] get-tuple-element(s.1), index=0
  three.1 = s32[] constant(3)
  ROOT c.1 = pred[] compare(i.1, three.1), direction=LT
}
body {
  s = (s32[], f32[4], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = s32[] constant(0)
  s.2 = (s32[], f32[4], s32[]) tuple(zero, x, n)
  loop.2 = (s32[], f32[4], s32[]) while(s.2), condition=few, body=inner
  y = f32[4] get-tuple-element(loop.2), index=1
  z = f32[4] reverse(y), dimensions={0}
  ROOT r = (s32[], f32[4], s32[], f32[4]) tuple(next, z, n, x)
}
ENTRY e {
  x0 = f32[4] parameter(0)
  n0 = s32[] parameter(1)
  zero.0 = s32[] constant(0)
  s.0 = (s32[], f32[4], s32[], f32[4]) tuple(zero.0, x0, n0, x0)
  loop = (s32[], f32[4], s32[], f32[4]) while(s.0), condition=cond, body=body
  count = s32[] get-tuple-element(loop), index=0
  out = f32[4] get-tuple-element(loop), index=1
  same = s32[] get-tuple-element(loop), index=2
  again = f32[4] get-tuple-element(loop), index=1
  before = f32[4] get-tuple-element(loop), index=3
  ROOT root = (s32[], f32[4], s32[], f32[4], f32[4]) tuple(count, out, same, again, before)
}
"""
COUNTED, TOLD = "constant(2)", "get-tuple-element(s.3), index=2"


def program(inner: str = COUNTED) -> HloModule:
    return parse_module(TEXT.replace("INNER", inner))


def loops(module: HloModule) -> list[str]:
    return [x.name for x in module.all_instructions() if x.opcode is Opcode.WHILE]


def same_as(module: HloModule, inner: str = COUNTED) -> bool:
    given = np.array([1, 2, 5, 7], np.float32), np.array(2, np.int32)
    results = zip(evaluate(program(inner), *given), evaluate(module, *given), strict=True)
    return all(np.array_equal(want, got) for want, got in results)


def test_nested_loops_are_unrolled_from_within() -> None:
    module = program()
    assert Pipeline("once", (WHOLE,)).run(module)
    assert loops(module) == []
    assert len(module.computations) == 1
    assert [x.opcode for x in module.entry.instructions].count(Opcode.SUBTRACT) == 6
    assert same_as(module)
    assert not Pipeline("once", (WHOLE,)).run(module)


def test_elements_that_are_read_several_times_or_never_change() -> None:
    module = program()
    assert Pipeline("once", (WHOLE,)).run(module)
    run_passes(module, SIMPLIFICATION)
    count, out, same, again, before = module.entry.root.operands
    assert (expression(count), expression(same)) == ("3", "p1")
    assert out is again
    assert out is not before
    assert same_as(module)


def test_a_loop_of_unknown_length_within_one_that_is_unrolled() -> None:
    """Each trip has its own copy of the inner loop."""
    module = program(TOLD)
    assert Pipeline("once", (WHOLE,)).run(module)
    assert len(loops(module)) == 3
    assert same_as(module, TOLD)
    run_passes(module, SIMPLIFICATION)
    assert len({x.while_body for x in module.entry.with_opcode(Opcode.WHILE)}) == 3
    assert same_as(module, TOLD)


#: Instructions of the inner loop's body and condition, and of the outer loop's body without the inner loop's.
INNER, CONDITION, OUTER = 10, 4, 12


@pytest.mark.parametrize(
    ("most", "left"),
    [
        (0, []),
        (INNER * 2 - 1, ["loop.2", "loop"]),
        (INNER * 2, ["loop"]),
        (10_000, []),
    ],
)
def test_loops_that_would_become_too_long_stay(most: int, left: list[str]) -> None:
    module = program()
    step = WhileLoopUnroller(factor=0, collectives=False, max_instructions=most)
    assert Pipeline("once", (step,)).run(module) == (len(left) < 2)
    assert loops(module) == left
    assert same_as(module)


@pytest.mark.parametrize("factor", [0, 3])
def test_loops_within_a_body_are_counted_with_it(factor: int) -> None:
    """Each copy of the body has its own copies of inner loops, once flatten-call-graph has run."""
    most = 3 * (OUTER + INNER + CONDITION)
    for limit, changes in ((most - 1, False), (most, True)):
        module = program(TOLD)
        step = WhileLoopUnroller(factor, collectives=False, max_instructions=limit)
        assert Pipeline("once", (step,)).run(module) == changes
        assert same_as(module, TOLD)


def test_bodies_that_would_become_too_long_stay() -> None:
    """The limit holds for loops that stay loops, too.

    The inner body would be twice as long, and the outer one has the inner one in it.
    """
    step = WhileLoopUnroller(factor=2, collectives=False, max_instructions=2 * INNER - 1)
    assert not Pipeline("once", (step,)).run(program())


@pytest.mark.parametrize("waits", ["", ", control-predecessors={next}"])
def test_copies_wait_within_their_trip(waits: str) -> None:
    z = "z = f32[4] reverse(y), dimensions={0}"
    module = parse_module(TEXT.replace("INNER", COUNTED).replace(z, z + waits))
    assert Pipeline("once", (WHOLE,)).run(module)
    reversals = list(module.entry.with_opcode(Opcode.REVERSE))
    assert len(reversals) == 3
    waited = [[before.opcode for before in x.control_predecessors] for x in reversals]
    assert waited == [[Opcode.ADD] if waits else []] * 3
    assert len({x for r in reversals for x in r.control_predecessors}) == (3 if waits else 0)
    assert same_as(module)


@pytest.mark.parametrize(
    ("line", "pinned"),
    [
        ("while(s.0), condition=cond, body=body", ", control-predecessors={n0}"),
        ("out = f32[4] get-tuple-element(loop), index=1", ", control-predecessors={n0}"),
        ("out = f32[4] get-tuple-element(loop), index=1", ", sharding={replicated}"),
        ("tuple(next, z, n, x)", ", control-predecessors={i}"),
    ],
)
def test_loops_whose_order_or_sharding_would_be_lost_stay(line: str, pinned: str) -> None:
    module = parse_module(TEXT.replace("INNER", TOLD).replace(line, line + pinned))
    assert not Pipeline("once", (WHOLE,)).run(module)


def test_loops_without_collectives_stay() -> None:
    assert not Pipeline("once", (WhileLoopUnroller(factor=0),)).run(program())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("factor=1", "option factor of while-loop-unroller: expected 0, or 2 or more, found 1"),
        ("factor=-2", "option factor of while-loop-unroller: expected 0, or 2 or more, found -2"),
        ("factor=all", "option factor of while-loop-unroller: expected int, found 'all'"),
        (
            "max-instructions=-1",
            "option max_instructions of while-loop-unroller: expected 0 or more, found -1",
        ),
    ],
)
def test_what_no_limit_is(options: str, message: str) -> None:
    with pytest.raises(PassOptionError) as error:
        parse_passes(f"while-loop-unroller{{{options}}}")
    assert str(error.value) == message


@pytest.mark.parametrize("seed", range(12))
def test_random_loops_are_unrolled_whole(seed: int) -> None:
    """One run unrolls all loops, and leaves nothing for a second run."""
    options = "factor=0,collectives=false,max-instructions=1000"
    assert check_trigger(Trigger("while-loop-unroller", modules, options), seed).runs == 1
