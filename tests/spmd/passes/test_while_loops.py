"""Loops: trivial trip counts, dead and unchanging state, constants sunk, invariants hoisted."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.interface import HloPass
from spmd.passes.pipeline import Pipeline, run_passes
from spmd.passes.while_loop_constant_sinking import WhileLoopConstantSinking
from spmd.passes.while_loop_double_buffer import WhileLoopDoubleBuffer
from spmd.passes.while_loop_invariant_code_motion import WhileLoopInvariantCodeMotion
from spmd.passes.while_loop_simplifier import WhileLoopSimplifier
from spmd.passes.while_loop_unroller import WhileLoopUnroller
from spmd.text.parser import parse_module
from spmd.verifier import verify

#: State: counter, accumulator, a weight that never changes, a constant that never changes, a value nobody reads.
TEXT = """HloModule t
cond {
  s = (s32[], f32[4], f32[4,4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4], f32[4,4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(s), index=1
  w = f32[4,4] get-tuple-element(s), index=2
  k = f32[4] get-tuple-element(s), index=3
  dead = f32[4] get-tuple-element(s), index=4
  e = f32[4,4] exponential(w)
  t = f32[4,4] transpose(e), dimensions={1,0}
  y = f32[4] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  z = f32[4] add(y, k)
  more = f32[4] add(dead, z)
  ROOT r = (s32[], f32[4], f32[4,4], f32[4], f32[4]) tuple(next, z, w, k, more)
}
ENTRY e {
  x0 = f32[4] parameter(0)
  w0 = f32[4,4] parameter(1)
  zero = s32[] constant(0)
  half = f32[] constant(0.5)
  k0 = f32[4] broadcast(half), dimensions={}
  s0 = (s32[], f32[4], f32[4,4], f32[4], f32[4]) tuple(zero, x0, w0, k0, x0)
  loop = (s32[], f32[4], f32[4,4], f32[4], f32[4]) while(s0), condition=cond, body=body
  out = f32[4] get-tuple-element(loop), index=1
  same = f32[4,4] get-tuple-element(loop), index=2
  ROOT root = (f32[4], f32[4,4]) tuple(out, same)
}
"""


def program(trips: int = 3) -> HloModule:
    return parse_module(TEXT.replace("TRIPS", str(trips)))


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.normal(size=4).astype(np.float32),
        (0.1 * rng.normal(size=(4, 4))).astype(np.float32),
    ]


def loop_of(module: HloModule) -> HloInstruction:
    return next(x for x in module.entry.instructions if x.opcode is Opcode.WHILE)


def changed_by(*passes: HloPass, trips: int = 3) -> HloModule:
    """The program after ``passes``, which must change it and nothing that the evaluator sees."""
    module = program(trips)
    expected = evaluate(module, *arguments())
    assert Pipeline("once", passes).run(module)
    verify(module)
    for want, got in zip(expected, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(want, got)
    return module


def test_dead_and_unchanging_elements() -> None:
    module = changed_by(WhileLoopSimplifier(), DeadCodeElimination())
    loop = loop_of(module)
    assert str(loop.shape) == "(s32[], f32[4], f32[4,4], f32[4])"  # the dead element is gone
    assert expression(module.entry.root.operand(1)) == "p1"  # the weight is read where it came from
    assert "more" not in [x.name for x in loop.while_body.instructions]


def test_constants_are_sunk() -> None:
    module = changed_by(WhileLoopConstantSinking(), WhileLoopSimplifier(), DeadCodeElimination())
    loop = loop_of(module)
    assert str(loop.shape) == "(s32[], f32[4], f32[4,4])"
    (z,) = (x for x in loop.while_body.instructions if x.name == "z")
    assert expression(z.operand(1)) == "broadcast(0.5, (), f32[4])"


def test_invariants_are_hoisted() -> None:
    module = changed_by(WhileLoopInvariantCodeMotion())
    loop = loop_of(module)
    inside = [x.opcode for x in loop.while_body.instructions]
    assert Opcode.EXPONENTIAL not in inside
    assert Opcode.TRANSPOSE not in inside
    carried = loop.operand(0).operands[-1]
    assert expression(carried) == "transpose(exponential(p1), (1, 0))"
    assert not WhileLoopInvariantCodeMotion().run(module)


@pytest.mark.parametrize(("size", "stays"), [(90, True), (60, False)])
def test_values_much_larger_than_their_source_stay_inside(size: int, stays: bool) -> None:
    """A value of 5,760 bytes stays inside the loop, and one of 3,840 bytes is hoisted."""
    grown = TEXT.replace("e = f32[4,4] exponential(w)", "b = f32[4,4,90] broadcast(w), dimensions={0,1}\n"
        "  c = f32[4,4,90] cosine(b)\n  q = f32[] constant(0)\n"
        "  e = f32[4,4] reduce-precision(w), exponent_bits=8, mantissa_bits=7\n"
        "  d = f32[4,4,1] slice(c), slice={[0:4], [0:4], [0:1]}").replace(
        "z = f32[4] add(y, k)", "g = f32[4,4,90] add(c, h)\n  v = f32[4] slice(u), slice={[0:4]}\n  z = f32[4] add(y, v)").replace(
        "x = f32[4] get-tuple-element(s), index=1", "x = f32[4] get-tuple-element(s), index=1\n"
        "  h = f32[4,4,90] broadcast(x), dimensions={0}").replace(
        "  v = f32[4]", "  u = f32[1440] reshape(g)\n  v = f32[4]").replace("TRIPS", "3")  # fmt: skip
    grown = grown.replace("4,4,90", f"4,4,{size}").replace("1440", str(16 * size))
    module = parse_module(grown)
    assert WhileLoopInvariantCodeMotion().run(module)
    verify(module)
    inside = [x.opcode for x in loop_of(module).while_body.instructions]
    assert (Opcode.COSINE in inside) == stays


@pytest.mark.parametrize("trips", [0, 1])
def test_loops_of_at_most_one_iteration_vanish(trips: int) -> None:
    module = changed_by(WhileLoopSimplifier(), trips=trips)
    assert all(x.opcode is not Opcode.WHILE for x in module.all_instructions())


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_everything_together(trips: int) -> None:
    module = program(trips)
    expected = evaluate(module, *arguments())
    Pipeline("simplification", SIMPLIFICATION, repeated=True).run(module, lambda _: verify(module))
    for want, got in zip(expected, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(want, got)


def test_bodies_that_two_loops_share_are_left_alone() -> None:
    shared = TEXT.replace("TRIPS", "3").replace(
        "ROOT root = (f32[4], f32[4,4]) tuple(out, same)",
        "again = (s32[], f32[4], f32[4,4], f32[4], f32[4]) while(s0), condition=cond, body=body\n"
        "  two = f32[4] get-tuple-element(again), index=1\n"
        "  ROOT root = (f32[4], f32[4]) tuple(out, two)",
    )
    module = parse_module(shared)
    assert not WhileLoopInvariantCodeMotion().run(module)
    assert not WhileLoopConstantSinking().run(module)
    run_passes(module, SIMPLIFICATION)
    verify(module)


#: A stencil's loop of four trips, whose end may have to wait.
STENCIL = """HloModule t
cond {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(s), index=1
  turned = f32[4] reverse(x), dimensions={0}
  y = f32[4] subtract(x, turned)
  ROOT r = (s32[], f32[4]) tuple(next, y)WAITS
}
ENTRY e {
  x0 = f32[4] parameter(0)
  zero = s32[] constant(0)
  s0 = (s32[], f32[4]) tuple(zero, x0)
  loop = (s32[], f32[4]) while(s0), condition=cond, body=body
  ROOT out = f32[4] get-tuple-element(loop), index=1
}
"""


@pytest.mark.parametrize(
    ("waits", "changes"), [("", True), (", control-predecessors={turned}", False)]
)
def test_loops_whose_end_must_wait_are_not_run_twice(waits: str, changes: bool) -> None:
    module = parse_module(STENCIL.replace("WAITS", waits))
    assert Pipeline("once", (WhileLoopDoubleBuffer(),)).run(module) == changes
    x = np.arange(4, dtype=np.float32)
    (want,) = evaluate(parse_module(STENCIL.replace("WAITS", "")), x)
    (got,) = evaluate(module, x)
    np.testing.assert_array_equal(got, want)


WHOLE = """out = f32[4] get-tuple-element(loop), index=1
  same = f32[4,4] get-tuple-element(loop), index=2
  ROOT root = (f32[4], f32[4,4]) tuple(out, same)"""
LOOP = "(s32[], f32[4], f32[4,4], f32[4], f32[4])"


@pytest.mark.parametrize("readers", [f"ROOT root = ({LOOP}, f32[4]) tuple(loop, x0)", ""])
def test_a_loop_whose_result_is_read_whole_keeps_its_type(readers: str) -> None:
    text = TEXT.replace("TRIPS", "3").replace(WHOLE, readers)
    module = parse_module(text if readers else text.replace("loop =", "ROOT loop ="))
    shape, wanted = module.entry.root.shape, evaluate(module, *arguments())
    assert Pipeline("once", (WhileLoopInvariantCodeMotion(),)).run(module)
    verify(module)
    assert module.entry.root.shape == shape
    for want, got in zip(wanted, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(want, got)


EFFECT = """n = s32[] constant(TRIPS)
  print = () custom-call(i), custom_call_target="print", custom_call_has_side_effect=true"""


@pytest.mark.parametrize("trips", [4, 5])
@pytest.mark.parametrize(
    "step", [WhileLoopDoubleBuffer(), WhileLoopUnroller(collectives=False)], ids=str
)
def test_a_condition_with_an_effect_is_asked_as_often(step: HloPass, trips: int) -> None:
    text = TEXT.replace("z = f32[4] add(y, k)", "z = f32[4] reverse(x), dimensions={0}")
    assert Pipeline("once", (step,)).run(parse_module(text.replace("TRIPS", str(trips))))
    text = text.replace("n = s32[] constant(TRIPS)", EFFECT).replace("TRIPS", str(trips))
    assert not Pipeline("once", (step,)).run(parse_module(text))


def test_copies_of_a_trip_wait_as_it_does() -> None:
    """A copy waits for values of its own trip.

    Values with which the trip begins are there already.
    """
    turned = "turned = f32[4] reverse(x), dimensions={0}"
    text = STENCIL.replace("WAITS", "")
    module = parse_module(text.replace(turned, turned + ", control-predecessors={s, i, next}"))
    assert Pipeline("once", (WhileLoopUnroller(collectives=False),)).run(module)
    verify(module)
    first, second = loop_of(module).while_body.with_opcode(Opcode.REVERSE)
    *there, counted = first.control_predecessors
    assert [x.opcode for x in there] == [Opcode.PARAMETER, Opcode.GET_TUPLE_ELEMENT]
    (counted_again,) = second.control_predecessors
    assert counted_again.operand(0) is counted
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(module, x), evaluate(parse_module(text), x))
