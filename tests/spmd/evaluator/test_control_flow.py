"""call, while, conditional, scan, async wrappers, tuples and tokens."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.errors import RunError, ShapeError, UnsupportedError
from spmd.evaluator import evaluate, evaluate_instruction
from spmd.evaluator.session import Session
from spmd.text.parser import parse_module

COLLATZ = """
cond { s = (s32[], s32[]) parameter(0) n = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  ROOT c = pred[] compare(n, one), direction=NE }
half { n = s32[] parameter(0) two = s32[] constant(2) ROOT r = s32[] divide(n, two) }
grow { n = s32[] parameter(0) three = s32[] constant(3) one = s32[] constant(1) m = s32[] multiply(n, three)
  ROOT r = s32[] add(m, one) }
body { s = (s32[], s32[]) parameter(0) n = s32[] get-tuple-element(s), index=0 k = s32[] get-tuple-element(s), index=1
  two = s32[] constant(2) r = s32[] remainder(n, two)
  next = s32[] conditional(r, n, n), branch_computations={half, grow}
  one = s32[] constant(1) k1 = s32[] add(k, one) ROOT t = (s32[], s32[]) tuple(next, k1) }
"""


def test_while_and_conditional(run):
    body = """n = s32[] parameter(0) z = s32[] constant(0) i = (s32[], s32[]) tuple(n, z)
      w = (s32[], s32[]) while(i), condition=cond, body=body ROOT k = s32[] get-tuple-element(w), index=1"""
    assert int(run(body, np.int32(27), before=COLLATZ)[0]) == 111
    assert int(run(body, np.int32(1), before=COLLATZ)[0]) == 0


@pytest.mark.parametrize(("selector", "branch"), [(-1, 2), (0, 0), (1, 1), (2, 2), (9, 2)])
def test_conditional_out_of_range_takes_the_last_branch(run, selector, branch):
    before = " ".join(
        f"b{i} {{ x = f32[] parameter(0) c = f32[] constant({i}) ROOT r = f32[] add(x, c) }}"
        for i in range(3)
    )
    body = """i = s32[] parameter(0) x = f32[] constant(10)
      ROOT r = f32[] conditional(i, x, x, x), branch_computations={b0, b1, b2}"""
    assert float(run(body, np.int32(selector), before=before)[0]) == 10 + branch


def test_predicated_conditional(run):
    before = "t { x = f32[] parameter(0) ROOT r = f32[] negate(x) } f { x = f32[] parameter(0) ROOT r = f32[] copy(x) }"
    body = """p = pred[] parameter(0) x = f32[] constant(3)
      ROOT r = f32[] conditional(p, x, x), true_computation=t, false_computation=f"""
    assert float(run(body, np.bool_(True), before=before)[0]) == -3
    assert float(run(body, np.bool_(False), before=before)[0]) == 3


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_stacks_outputs_and_carries_state(run, reverse):
    before = """f { x = f32[] parameter(0) c = f32[] parameter(1) s = f32[] add(x, c)
      ROOT t = (f32[], f32[]) tuple(s, s) }"""
    body = f"""x = f32[4] parameter(0) z = f32[] constant(0)
      ROOT r = (f32[4], f32[]) scan(x, z), dimensions={{0}}, num_carries=1, is_reverse={str(reverse).lower()}, to_apply=f"""
    x = np.array([1, 2, 3, 4], np.float32)
    sums, last = run(body, x, before=before)
    want = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    np.testing.assert_array_equal(sums, want)
    assert float(last) == 10


def test_async_and_copy_pairs(run):
    before = "w { x = f32[4] parameter(0) ROOT r = f32[2] slice(x), slice={[0:2]} }"
    body = """x = f32[4] parameter(0) s = ((f32[4]), f32[2], s32[]) async-start(x), calls=w
      u = ((f32[4]), f32[2], s32[]) async-update(s), calls=w d = f32[2] async-done(u), calls=w
      c = (f32[2], f32[2], u32[]) copy-start(d) ROOT r = f32[2] copy-done(c)"""
    assert run(body, np.arange(4, dtype=np.float32), before=before)[0].tolist() == [0, 1]


def test_tuples_tokens_and_nested_outputs(run):
    body = """a = (f32[2], (s32[], f32[])) parameter(0) t = token[] after-all()
      i = (s32[], f32[]) get-tuple-element(a), index=1 x = f32[2] get-tuple-element(a), index=0
      y = f32[2] add-dependency(x, t) b = (s32[], f32[]) opt-barrier(i)
      ROOT r = ((s32[], f32[]), f32[2], token[]) tuple(b, y, t)"""
    x, n, v = np.array([1, 2], np.float32), np.int32(7), np.float32(0.5)
    got = run(body, x, n, v)
    assert [g.tolist() for g in got] == [7, 0.5, [1, 2]]


def test_fusion_runs_its_computation(run):
    before = "f { x = f32[3] parameter(0) y = f32[3] negate(x) ROOT r = f32[3] multiply(x, y) }"
    body = "x = f32[3] parameter(0) ROOT r = f32[3] fusion(x), kind=kLoop, calls=f"
    assert run(body, np.array([1, 2, 3], np.float32), before=before)[0].tolist() == [-1, -4, -9]


def test_outputs_are_arrays_of_their_own(run):
    x = np.arange(3, dtype=np.float32)
    got = run("x = f32[3] parameter(0) ROOT t = (f32[3], f32[3]) tuple(x, x)", x)
    got[0][0] = 5
    assert x[0] == 0
    assert got[1][0] == 0


def test_arguments_are_checked(run):
    with pytest.raises(ShapeError, match="takes 1 arrays, found 2"):
        run("ROOT x = f32[3] parameter(0)", np.zeros(3, np.float32), np.zeros(3, np.float32))
    with pytest.raises(
        ShapeError, match=r"argument 0 \(p\): expected f32\[3\], found float64\[3\]"
    ):
        run("ROOT p = f32[3] parameter(0)", np.zeros(3))


def test_unknown_and_impossible_ops_are_refused_by_name(run):
    with pytest.raises(UnsupportedError, match='target "nobody"'):
        run(
            'x = f32[] parameter(0) ROOT r = f32[] custom-call(x), custom_call_target="nobody"',
            np.float32(0),
        )
    body = "t = token[] after-all() i = (f32[2], token[]) infeed(t) ROOT r = f32[2] get-tuple-element(i), index=0"
    with pytest.raises(RunError, match=r"infeed.*but none are given"):
        run(body)


def test_one_instruction_for_constant_folding():
    text = """HloModule m
      add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
      ENTRY e { x = f32[4] parameter(0) z = f32[] constant(0) s = f32[] reduce(x, z), dimensions={0}, to_apply=add
        p = u32[] partition-id() ROOT t = (f32[], u32[]) tuple(s, p) }"""
    entry = parse_module(text).entry
    by_name = {i.name: i for i in entry.instructions}
    value = evaluate_instruction(
        by_name["s"], [np.arange(4, dtype=np.float32), np.array(1, np.float32)]
    )
    assert float(value) == 7
    with pytest.raises(RunError, match="no value apart from its device"):
        evaluate_instruction(by_name["p"], [])


def test_a_per_device_program_is_not_evaluated_as_a_whole():
    text = "HloModule m, num_partitions=2\nENTRY e { ROOT p = u32[] partition-id() }"
    with pytest.raises(RunError, match="use evaluate_partitions"):
        evaluate(parse_module(text))


#: Each element has its own number of trips, and its own branch at the end.
MAPPED = """
body { s = (s32[], f32[]) parameter(0) n = s32[] get-tuple-element(s), index=0 x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1) m = s32[] subtract(n, one) y = f32[] add(x, x) ROOT t = (s32[], f32[]) tuple(m, y) }
more { s = (s32[], f32[]) parameter(0) n = s32[] get-tuple-element(s), index=0 z = s32[] constant(0)
  ROOT r = pred[] compare(n, z), direction=GT }
b0 { x = f32[] parameter(0) ROOT y = f32[] negate(x) }
b1 { x = f32[] parameter(0) k = f32[] constant(100) ROOT y = f32[] add(x, k) }
b2 { x = f32[] parameter(0) ROOT y = f32[] copy(x) }
f { n = s32[] parameter(0) x = f32[] constant(1) s = (s32[], f32[]) tuple(n, x)
  w = (s32[], f32[]) while(s), condition=more, body=body y = f32[] get-tuple-element(w), index=1
  ROOT c = f32[] conditional(n, y, y, y), branch_computations={b0, b1, b2} }
"""


def test_loops_and_branches_of_each_element(run):
    n = np.array([[-1, 0, 1], [2, 5, 10]], np.int32)
    body = "n = s32[2,3] parameter(0) ROOT r = f32[2,3] map(n), dimensions={0,1}, to_apply=f"
    np.testing.assert_array_equal(run(body, n, before=MAPPED)[0], [[1, -1, 102], [4, 32, 1024]])


def test_constants_of_a_body_are_made_once():
    """Values that depend on constants alone are part of the order's frame; those of the loop's state have ops."""
    module = parse_module("""HloModule m
      ENTRY e { x = f32[4] parameter(0) one = f32[] constant(1) ones = f32[4] broadcast(one), dimensions={}
        i = s32[4] iota(), iota_dimension=0 f = f32[4] convert(i) a = f32[4] add(x, ones) b = f32[4] add(a, f)
        wide = f32[9000] broadcast(one), dimensions={} s = f32[4] slice(wide), slice={[0:4]} ROOT r = f32[4] add(b, s) }""")
    order = Session(module).order(module.entry)
    assert [op.instruction.name for op in order.ops] == ["x", "a", "b", "wide", "s", "r"]
    (r,) = evaluate(module, np.zeros(4, np.float32))
    assert r.tolist() == [2, 3, 4, 5]
