"""Tests that layout assignment leaves fewer copies and the same results, and that its model foresees the copies."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

from runtime.compile import build_executable
from runtime.layout.layout_assignment import LayoutAssignment
from runtime.layout.model import LayoutModel
from runtime.layout.search import wishes
from runtime.program.dot_matrices import unread_operands
from runtime.program.strides import StridedView
from runtime.program.thunks import CopyThunk, traverse
from spmd.builder import Builder
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.programs import module_of, random_inputs
from tests.spmd.passes.triggers.registry import trigger_of

F32 = PrimitiveType.F32


def copies(module: HloModule) -> int:
    """Return the copies in the executable of a copy of ``module``."""
    program = build_executable(clone_module(module)).program
    return sum(isinstance(thunk, CopyThunk) for thunk in traverse(program.thunks))


def assigned(text: str) -> HloModule:
    module = module_of(text)
    module.stage = Stage.OPTIMIZED
    LayoutAssignment().run(module)
    return module


@pytest.mark.parametrize("seed", range(20))
def test_what_sets_it_off_runs_right(seed: int) -> None:
    trigger = trigger_of("layout-assignment")
    assert trigger is not None
    module = trigger.modules(np.random.default_rng([zlib.crc32(trigger.name.encode()), seed]))
    before = copies(module)
    inputs = [random_inputs(module, device) for device in range(module.num_partitions)]
    want = evaluate_partitions(module, inputs)
    LayoutAssignment().run(module)
    assert copies(module) <= before
    for got, wanted in zip(build_executable(module).run_devices(inputs), want, strict=True):
        for one, other in zip(got, wanted, strict=True):
            rtol = 1e-5 if one.dtype.itemsize > 2 else 3e-2
            np.testing.assert_allclose(
                one.astype(np.float64), other.astype(np.float64), rtol=rtol, atol=rtol
            )


LOOP = """HloModule loop

body {
  s = (s32[], f32[2,5,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,5,6] get-tuple-element(s), index=1
  h = f32[2,5,3,2] reshape(x)
  q = f32[2,3,5,2] transpose(h), dimensions={0,2,1,3}
  a = f32[2,3,5,5] dot(q, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={3}
  p = f32[2,3,5,2] dot(a, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}
  t = f32[2,5,3,2] transpose(p), dimensions={0,2,1,3}
  r = f32[2,5,6] reshape(t)
  y = f32[2,5,6] tanh(r)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT n = (s32[], f32[2,5,6]) tuple(j, y)
}

condition {
  s = (s32[], f32[2,5,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

ENTRY main {
  x = f32[2,5,6] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[2,5,6]) tuple(zero, x)
  w = (s32[], f32[2,5,6]) while(s), condition=condition, body=body
  ROOT y = f32[2,5,6] get-tuple-element(w), index=1
}
"""


def test_in_a_loop() -> None:
    module = module_of(LOOP)
    before = copies(module)
    done = assigned(LOOP)
    product = next(x for x in done.all_instructions() if x.name == "p")
    assert str(product.shape) == "f32[2,3,5,2]{3,1,2,0}"
    assert copies(done) < before
    inputs = random_inputs(done)
    (want,) = evaluate_partitions(module, [inputs])
    np.testing.assert_allclose(build_executable(done).run(*inputs)[0], want[0], rtol=1e-5)


TWO_READERS = """HloModule readers

ENTRY main {{
  x = f32[4,6,5] parameter(0)
  y = f32[4,5,7] parameter(1)
  d = f32[4,6,7] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  e = f32[4,6,7] exponential(d)
  t = f32[6,4,7] transpose(d), dimensions={{1,0,2}}
  r = f32[6,28] reshape(t)
  {more}
}}
"""


def test_operands_that_members_exchange() -> None:
    """An all-to-all of one operand for each member has several results, none of which says how operands are to lie."""
    module = assigned("""HloModule exchange, num_partitions=2

    ENTRY main {
      x = f32[4,6] parameter(0)
      low = f32[2,6] slice(x), slice={[0:2], [0:6]}
      high = f32[2,6] slice(x), slice={[2:4], [0:6]}
      t = f32[6,2] transpose(low), dimensions={1,0}
      u = f32[6,2] transpose(high), dimensions={1,0}
      both = (f32[6,2], f32[6,2]) all-to-all(t, u), channel_id=1, replica_groups={{0,1}}
      first = f32[6,2] get-tuple-element(both), index=0
      second = f32[6,2] get-tuple-element(both), index=1
      ROOT r = f32[6,4] concatenate(first, second), dimensions={1}
    }
    """)
    inputs = [random_inputs(module, device) for device in range(2)]
    want = evaluate_partitions(module, inputs)
    for got, wanted in zip(build_executable(module).run_devices(inputs), want, strict=True):
        np.testing.assert_array_equal(got[0], wanted[0])


def test_the_reader_with_more_bytes_has_its_way() -> None:
    """One copy is left at a conflict: here none, for an operation that takes any strides gives way to a reshape."""
    done = assigned(TWO_READERS.format(more="ROOT o = (f32[6,28], f32[4]) tuple(r, f)").replace(
        "  t = ", "  z = f32[] constant(0)\n  f = f32[4] reduce(e, z), dimensions={1,2}, to_apply=sum\n  t = "
    ).replace("ENTRY", "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\nENTRY"))  # fmt: skip
    assert [str(x.shape) for x in done.entry.with_opcode(Opcode.DOT)] == ["f32[4,6,7]{2,0,1}"]
    assert copies(done) == 0


def test_outputs_are_row_major() -> None:
    """Both outputs cannot be had without a copy: it is made once, for one of them."""
    done = assigned(TWO_READERS.format(more="ROOT o = (f32[6,28], f32[4,6,7]) tuple(r, d)"))
    assert copies(done) == 1


PRODUCTS = [
    DotAttrs((0, 3), (0, 1)),
    DotAttrs((3, 0), (1, 0)),
    DotAttrs((3,), (2,), (0,), (0,)),
    DotAttrs((1, 2), (0, 1), (3,), (2,)),
]


@pytest.mark.parametrize("attrs", PRODUCTS, ids=str)
def test_products_read_what_they_wish_for(attrs: DotAttrs) -> None:
    """The model counts a copy exactly where the runtime makes one."""
    b = Builder(HloModule("m").new_computation("entry"))
    assert b.computation.module is not None
    b.computation.module.entry = b.computation
    sizes = (2, 3, 4, 5)
    dims = [7, 7, 7]
    for i, d in zip((*attrs.rhs_batch, *attrs.rhs_contracting), (*attrs.lhs_batch, *attrs.lhs_contracting), strict=True):  # fmt: skip
        dims[i] = sizes[d]
    x = b.negate(b.parameter(0, ArrayShape(F32, sizes)))
    w = b.parameter(1, ArrayShape(F32, tuple(dims)))
    dot = b.dot(x, w, attrs)
    b.computation.root = dot
    model = LayoutModel.of(b.computation.module)
    wished = wishes(model, dot, 0)
    for order in itertools.permutations(range(4)):
        views = StridedView.dense_in_order(x.array_shape, order), StridedView.dense(w.array_shape)
        is_copied = 0 in unread_operands(dot, views)
        assert not (is_copied and order in wished)
        model.write(x, order)
        assert (0 in model.costs(dot)) == is_copied
