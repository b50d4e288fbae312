"""Reductions of few elements are loops over their results."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.fusion.emitters import emitter_of
from runtime.program.records.loop import LoopKernel
from spmd.evaluator.evaluator import evaluate
from spmd.shape import PrimitiveType as P
from tests.runtime.cpu.kernels.loop.element_signatures import canonical
from tests.runtime.fusion.test_loop_fusions import edge_inputs, kernels
from tests.runtime.fusion.test_row_fusions import REDUCTIONS, reduce_text
from tests.runtime.programs.build import compiled, module_of


def check(text: str, *, exact: bool) -> None:
    """``exact``: the bits of the evaluator; else within roundings of sums in another order."""
    module = module_of(text)
    assert emitter_of(module.entry.root) == "loop"
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, LoopKernel)
    if exact:
        inputs = edge_inputs(module, 1)
    else:
        rng = np.random.default_rng(2)
        inputs = [
            rng.standard_normal(p.dims).astype(p.array_shape.element_type.numpy)
            for p in module.entry.parameters
        ]
    with np.errstate(all="ignore"):
        wanted = evaluate(module, *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        if exact:
            assert canonical(got) == canonical(want)
        else:
            rounding = 2.0 ** (-7 if got.dtype.itemsize == 2 else -21)
            wide = [each.astype(np.float64) for each in (got, want)]
            np.testing.assert_allclose(*wide, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("opcode", "kind", "init"), REDUCTIONS, ids=lambda x: str(x))
@pytest.mark.parametrize(("dims", "axes"), [((33, 3), (1,)), ((4, 33), (0,))], ids=str)
def test_kinds(
    opcode: str, kind: P, init: str, dims: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    check(reduce_text(opcode, kind, init, dims, axes), exact=True)


@pytest.mark.parametrize("kind", [P.F32, P.F64, P.BF16, P.F16])
@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        ((129, 3), (1,)),
        ((3000, 2), (1,)),
        ((5, 9, 3, 4), (3,)),
        ((40, 2, 2), (1, 2)),
        ((2, 40, 2), (0, 2)),
        ((3, 1030), (0,)),
    ],
    ids=str,
)
def test_sums(kind: P, dims: tuple[int, ...], axes: tuple[int, ...]) -> None:
    check(reduce_text("add", kind, "0.5", dims, axes), exact=False)


@pytest.mark.parametrize("axes", ["{0}", "{1}", "{2}", "{1,2}"])
def test_elements_of_a_constant_are_all_read(axes: str) -> None:
    """A constant that is an input of the kernel has an element at each index, one within it a single one."""
    left = {"{0}": "[3,4]", "{1}": "[2,4]", "{2}": "[2,3]", "{1,2}": "[2]"}[axes]
    numbers = "{{{1,2,5,7},{3,9,8,4},{6,0,2,1}},{{5,1,1,3},{2,2,6,9},{7,3,5,8}}}"
    text = f"""HloModule m

add {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT sum = s32[] add(a, b)
}}

ENTRY e {{
  c = s32[2,3,4] constant({numbers})
  z = s32[] constant(0)
  ROOT r = s32{left} reduce(c, z), dimensions={axes}, to_apply=add
}}
"""
    (want,) = evaluate(module_of(text))
    (got,) = compiled(text).run()
    np.testing.assert_array_equal(got, want)


def test_totals_of_narrow_floats_are_rounded_once() -> None:
    text = reduce_text("add", P.BF16, "0", (16, 4), (1,))
    inputs = [np.array([[256, 1, 1, 1]] * 16, P.BF16.numpy)]
    inputs += [np.zeros(p.dims, P.BF16.numpy) for p in module_of(text).entry.parameters[1:]]
    (got, *_) = compiled(text).run(*inputs)
    (want, *_) = evaluate(module_of(text), *inputs)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
