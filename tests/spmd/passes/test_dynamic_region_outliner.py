"""Arrays with run-time sizes in operations that the padder does not know."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.hlo import Opcode
from spmd.ops.custom_call import is_dynamic_region
from spmd.passes.dynamic_region_outliner import DynamicRegionOutliner

ADD = "add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }\n"
HEAD = "HloModule m\n" + ADD

REVERSED = """ENTRY e {
  x = s32[6,2] parameter(0)
  n = s32[] parameter(1)
  d = s32[<=6,2] set-dimension-size(x, n), dimensions={0}
  ROOT r = s32[<=6,2] reverse(d), dimensions={0}
}"""

PADDED = """ENTRY e {
  x = s32[6] parameter(0)
  n = s32[] parameter(1)
  two = s32[] constant(2)
  d = s32[<=6] set-dimension-size(x, n), dimensions={0}
  p = s32[<=11] pad(d, two), padding=0_0_1
  zero = s32[] constant(0)
  ROOT r = s32[] reduce(p, zero), dimensions={0}, to_apply=add
}"""

#: Elements stand one after the other: of six rows of two, four rows are eight elements, which are two by two by two.
SPLIT = """ENTRY e {
  x = s32[6,2] parameter(0)
  n = s32[] parameter(1)
  d = s32[<=6,2] set-dimension-size(x, n), dimensions={0}
  s = s32[2,<=3,2] reshape(d)
  zero = s32[] constant(0)
  ROOT r = s32[2,2] reduce(s, zero), dimensions={1}, to_apply=add
}"""

#: The body sets a size of its own, so the loop is part of the caller's region.
LOOP = """body {
  t = (s32[<=6], s32[]) parameter(0)
  x = s32[<=6] get-tuple-element(t), index=0
  n = s32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  less = s32[] subtract(n, one)
  y = s32[<=6] set-dimension-size(x, less), dimensions={0}
  ROOT u = (s32[<=6], s32[]) tuple(y, less)
}
condition {
  t = (s32[<=6], s32[]) parameter(0)
  n = s32[] get-tuple-element(t), index=1
  two = s32[] constant(2)
  ROOT p = pred[] compare(n, two), direction=GT
}
ENTRY e {
  x = s32[6] parameter(0)
  n = s32[] parameter(1)
  d = s32[<=6] set-dimension-size(x, n), dimensions={0}
  t = (s32[<=6], s32[]) tuple(d, n)
  w = (s32[<=6], s32[]) while(t), condition=condition, body=body
  y = s32[<=6] get-tuple-element(w), index=0
  zero = s32[] constant(0)
  ROOT r = s32[] reduce(y, zero), dimensions={0}, to_apply=add
}"""

SORTED = """less { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = s32[6] parameter(0)
  n = s32[] parameter(1)
  d = s32[<=6] set-dimension-size(x, n), dimensions={0}
  s = s32[<=6] sort(d), dimensions={0}, to_apply=less
  k = s32[] get-dimension-size(s), dimensions={0}
  y = s32[6] broadcast(k), dimensions={}
  z = s32[6] add(x, y)
  e = s32[<=6] set-dimension-size(z, k), dimensions={0}
  q = s32[<=6] multiply(s, e)
  ROOT r = (s32[<=6], s32[6]) tuple(q, z)
}"""

#: A size that is the bound is none, but the runtime knows no instruction that sets it.
AT_BOUND = """ENTRY e {
  x = s32[6] parameter(0)
  n = s32[] parameter(1)
  six = s32[] constant(6)
  y = s32[6] set-dimension-size(x, six), dimensions={0}
  d = s32[<=6] set-dimension-size(y, n), dimensions={0}
  r = s32[<=6] reverse(d), dimensions={0}
  zero = s32[] constant(0)
  s = s32[] reduce(r, zero), dimensions={0}, to_apply=add
  z = s32[6] negate(y)
  ROOT t = (s32[], s32[6]) tuple(s, z)
}"""

PROGRAMS = {
    "at bound": (AT_BOUND, (6,)),
    "reversed": (REVERSED, (6, 2)),
    "padded": (PADDED, (6,)),
    "split": (SPLIT, (6, 2)),
    "loop": (LOOP, (6,)),
    "sorted": (SORTED, (6,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs_give_what_the_evaluator_gives(name: str) -> None:
    text, dims = PROGRAMS[name]
    module = spmd.parse(HEAD + text)
    x = np.arange(np.prod(dims), dtype=np.int32)[::-1].reshape(dims)
    executable = spmd.compile(module)
    for n in (0, 2, 4, 6):
        arrays = (x, np.int32(n))
        for got, want in zip(executable.run(*arrays), spmd.evaluate(module, *arrays), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_region_ends_at_scalars_and_includes_what_lies_between() -> None:
    module = spmd.parse(HEAD + SORTED)
    assert DynamicRegionOutliner().run(module)
    spmd.verify(module)
    (call,) = [x for x in module.entry.instructions if is_dynamic_region(x)]
    (body,) = call.called_computations
    assert {Opcode.SORT, Opcode.BROADCAST, Opcode.MULTIPLY} <= {x.opcode for x in body.instructions}
    assert not DynamicRegionOutliner().run(module)


def test_scalars_alone_are_no_region() -> None:
    module = spmd.parse(
        HEAD + "ENTRY e { x = s32[6] parameter(0) ROOT r = s32[6] reverse(x), dimensions={0} }"
    )
    assert not DynamicRegionOutliner().run(module)


SUM = """ENTRY e {
  x = s32[6] parameter(0)
  m = s32[] parameter(1)
  y = s32[6] parameter(2)
  n = s32[] parameter(3)
  d = s32[<=6] set-dimension-size(x, m), dimensions={0}
  e = s32[<=6] set-dimension-size(y, n), dimensions={0}
  s = s32[<=6] add(d, e)
  zero = s32[] constant(0)
  ROOT r = s32[] reduce(s, zero), dimensions={0}, to_apply=add
}"""


@pytest.mark.parametrize(("m", "n"), [(3, 3), (3, 2), (1, 4), (4, 1), (1, 1)])
def test_sums_of_different_sizes_are_cut_or_repeated(m: int, n: int) -> None:
    x, y = np.arange(6, dtype=np.int32), 10 * np.arange(1, 7, dtype=np.int32)
    size = max(m, n) if 1 in (m, n) else min(m, n)
    want = (x[:1] if m == 1 else x[:size]) + (y[:1] if n == 1 else y[:size])
    module = spmd.parse(HEAD + SUM)
    arrays = (x, np.int32(m), y, np.int32(n))
    for (got,) in (spmd.evaluate(module, *arrays), spmd.compile(module).run(*arrays)):
        assert got == want.sum()


BORDER = """HloModule m
ENTRY e {
  x = s32[2,4] parameter(0)
  n = s32[] parameter(1)
  two = s32[] constant(2)
  d = s32[2,<=4] custom-call(x, two, n), custom_call_target="SliceToDynamic"
  p = (s32[2,4], s32[], s32[]) custom-call(d), custom_call_target="PadToStatic"
  k = s32[] get-tuple-element(p), index=2
  ROOT t = (s32[2,<=4], s32[]) tuple(d, k)
}"""


def test_arrays_are_cut_to_sizes_as_xla_does_at_the_border_of_a_program() -> None:
    module = spmd.parse(BORDER)
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    arrays = (x, np.int32(3))
    for cut, size in (spmd.evaluate(module, *arrays), spmd.compile(module).run(*arrays)):
        np.testing.assert_array_equal(cut, x[:, :3])
        assert size == 3


def test_a_broadcast_and_a_gather_take_the_size_of_the_moment() -> None:
    module = spmd.parse("""HloModule m
ENTRY e {
  x = s32[3,6] parameter(0)
  n = s32[] parameter(1)
  d = s32[3,<=6] set-dimension-size(x, n), dimensions={1}
  i = s32[2] constant({2, 0})
  g = s32[2,<=6] gather(d, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}
  ROOT b = s32[4,2,<=6] broadcast(g), dimensions={1,2}
}""")
    x = np.arange(18, dtype=np.int32).reshape(3, 6)
    want = np.broadcast_to(x[[2, 0], :4], (4, 2, 4))
    for (got,) in (spmd.evaluate(module, x, np.int32(4)), spmd.compile(module).run(x, np.int32(4))):
        np.testing.assert_array_equal(got, want)
