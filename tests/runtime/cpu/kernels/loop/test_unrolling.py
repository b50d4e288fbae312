"""Loops with short last dimensions: the same bits, and what their elements share is read and computed once."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.kernels.loop.unrolling import unrolled
from runtime.program.records.loop import LoopKernel
from runtime.program.scalar_program import ScalarOp
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import Opcode
from tests.runtime.fusion.test_loop_fusions import kernels
from tests.runtime.programs.build import compiled, module_of


def program(dims: str, body: str, *more: str) -> str:
    """Return a module of one loop fusion of x of ``dims``, y of its first dimension, and ``more`` parameters."""
    rows = dims.split(",")[0]
    shapes = [f"f32[{dims}]", f"f32[{rows}]", *more]
    names = ["x", "y", *(f"a{n}" for n in range(len(more)))]
    parameters = "\n  ".join(
        f"{name} = {shape} parameter({n})"
        for n, (name, shape) in enumerate(zip(names, shapes, strict=True))
    )
    return f"""HloModule m
add {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}}
max {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] maximum(p, q)
}}
fused {{
  {parameters}
  {body}
}}
ENTRY e {{
  {parameters}
  ROOT f = f32[{dims}] fusion({", ".join(names)}), kind=kLoop, calls=fused
}}
"""


def scaled(dims: str) -> str:
    return program(
        dims,
        f"b = f32[{dims}] broadcast(y), dimensions={{0}}\n  e = f32[{dims}] tanh(b)\n"
        f"  ROOT r = f32[{dims}] multiply(x, e)",
    )


def softmax(rows: int, length: int) -> str:
    shape = f"f32[{rows},{length}]"
    return program(
        f"{rows},{length}",
        f"""low = f32[] constant(-inf)
  m = f32[{rows}] reduce(x, low), dimensions={{1}}, to_apply=max
  mb = {shape} broadcast(m), dimensions={{0}}
  d = {shape} subtract(x, mb)
  e = {shape} exponential(d)
  z = f32[] constant(0)
  s = f32[{rows}] reduce(e, z), dimensions={{1}}, to_apply=add
  sb = {shape} broadcast(s), dimensions={{0}}
  q = {shape} divide(e, sb)
  yb = {shape} broadcast(y), dimensions={{0}}
  ROOT r = {shape} multiply(q, yb)""",
    )


COUNTED = program(
    "9,3",
    "i = f32[9,3] iota(), iota_dimension=1\n  b = f32[9,3] broadcast(y), dimensions={0}\n"
    "  k = f32[9,3] multiply(i, b)\n  ROOT r = f32[9,3] add(x, k)",
)
MOVED = program(
    "9,2",
    "z = s32[] constant(0)\n  w = f32[9,2] dynamic-slice(a0, a1, z), dynamic_slice_sizes={9,2}\n"
    "  b = f32[9,2] broadcast(y), dimensions={0}\n  k = f32[9,2] multiply(w, b)\n"
    "  ROOT r = f32[9,2] add(x, k)",
    "f32[30,4]",
    "s32[]",
)


def only_loop(text: str) -> LoopKernel:
    (kernel,) = kernels(compiled(text))
    assert isinstance(kernel, LoopKernel)
    return kernel


def operations(kernel: LoopKernel, opcode: Opcode) -> int:
    steps = [step for step in kernel.program.steps if isinstance(step, ScalarOp)]
    return sum(step.signature.opcode is opcode for step in steps)


@pytest.mark.parametrize(
    "text",
    [
        scaled("16,2"),
        scaled("33,3"),
        scaled("5,4"),
        scaled("7,2,2"),
        scaled("4,3,2"),
        scaled("1000,3"),
        softmax(33, 3),
        softmax(5, 4),
        softmax(3, 2),
        COUNTED,
        MOVED,
    ],
)
def test_loops_have_the_bits_of_the_evaluator(text: str) -> None:
    module = module_of(text)
    rng = np.random.default_rng(3)
    inputs = [
        np.int32(11) if not p.dims else rng.standard_normal(p.dims).astype(np.float32)
        for p in module.entry.parameters
    ]
    for got, want in zip(compiled(text).run(*inputs), evaluate(module, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-7)


def test_what_a_row_shares_is_computed_once() -> None:
    kernel = unrolled(only_loop(scaled("16,3")))
    assert kernel.dims == (16, 1)
    assert (len(kernel.leaves), len(kernel.results)) == (4, 3)
    assert operations(kernel, Opcode.TANH) == 1
    kernel = unrolled(only_loop(softmax(16, 3)))
    assert len(kernel.leaves) == 4
    assert operations(kernel, Opcode.EXPONENTIAL) == 3


def test_all_short_dimensions_are_unrolled() -> None:
    body = "v = f32[16,2,2] reverse(x), dimensions={0}\n  ROOT r = f32[16,2,2] add(x, v)"
    kernel = unrolled(only_loop(program("16,2,2", body)))
    assert kernel.dims == (16, 1, 1)
    assert sorted(view.offset for view in kernel.results) == [0, 4, 8, 12]


@pytest.mark.parametrize("dims", ["16,5", "1,3", "3,5,7"])
def test_longer_rows_and_single_rows_stay_loops(dims: str) -> None:
    kernel = only_loop(scaled(dims))
    assert unrolled(kernel) is kernel


def test_a_result_may_take_the_memory_of_what_it_is_computed_from() -> None:
    text = scaled("16,3").replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}) }")
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(n).astype(np.float32) for n in ((16, 3), (16,))]
    (want,) = evaluate(module_of(text), *inputs)
    (got,) = compiled(text).run(*inputs)
    np.testing.assert_allclose(got, want, rtol=3e-6)
