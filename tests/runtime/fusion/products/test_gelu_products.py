"""On a GPU gelu and its gradient join products, with the argument of gelu in memory between them."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.fusion.priority_fusion import PriorityFusion
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.machine.named import machine_named
from spmd.verifier import verify
from tests.runtime.fusion.products.test_library_epilogues import CPU, GPU, fusions_of_products
from tests.runtime.gpu.gelu_programs import FORMS, GRADIENT, gelu_program, gradient_program
from tests.runtime.programs import random_inputs
from tests.runtime.programs.build import module_of

#: A layer with gelu and the gradients of its weight, of its bias and of its input.
STEP = """HloModule step

sum {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT o = f32[] add(p, q)
}}

ENTRY e {{
  l = f32[64,128] parameter(0)
  r = f32[128,256] parameter(1)
  b1 = f32[256] parameter(2)
  b = f32[64,256] broadcast(b1), dimensions={{1}}
  g = f32[64,128] parameter(3)
  w = f32[128,256] parameter(4)
  half1 = f32[] constant(0.5)
  half = f32[64,256] broadcast(half1), dimensions={{}}
  one1 = f32[] constant(1)
  one = f32[64,256] broadcast(one1), dimensions={{}}
  three1 = f32[] constant(3)
  three = f32[64,256] broadcast(three1), dimensions={{}}
  a1 = f32[] constant(0.044715)
  a = f32[64,256] broadcast(a1), dimensions={{}}
  c1 = f32[] constant(0.7978845608)
  c = f32[64,256] broadcast(c1), dimensions={{}}
  f = f32[64,256] dot(l, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {argument}
  {gelu}
  y2 = f32[64,128] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  d = f32[64,256] dot(g, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {gradient}
  zero = f32[] constant(0)
  db = f32[256] reduce(dx, zero), dimensions={{0}}, to_apply=sum
  dr = f32[128,256] dot(l, dx), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[64,128], f32[256], f32[128,256]) tuple(y2, db, dr)
}}
"""


def written(form: str, before: str, result: str) -> str:
    """Return ``form`` with the names of its values made unique by ``before``, and its ``result`` named so."""
    own = [line.split(" = ")[0].strip() for line in form.strip().splitlines()]
    for name in own:
        new = result if name == "y" else before + name
        form = form.replace(f" {name} = ", f" {new} = ")
        for end in (",", ")"):
            for begin in ("(", " "):
                form = form.replace(f"{begin}{name}{end}", f"{begin}{new}{end}")
    return form.replace("T[M,N]", "f32[64,256]")


def step(*, bias: bool) -> str:
    argument = "x = f32[64,256] add(f, b)"
    gelu, gradient = written(FORMS["jax"], "f", "y"), written(GRADIENT, "g", "dx")
    text = STEP.format(argument=argument, gelu=gelu, gradient=gradient)
    if not bias:
        text = text.replace(argument, "").replace("f = f32[64,256] dot", "x = f32[64,256] dot")
    return text


def fused(text: str, machine: str) -> HloModule:
    module = module_of(text)
    PriorityFusion(machine=machine_named(machine)).run(module)
    verify(module)
    return module


def argument_of(gradient: HloInstruction, forward: HloInstruction) -> HloInstruction:
    """Return the result of ``forward`` that ``gradient`` reads."""
    (found,) = (x for x in gradient.operands if x.operands and x.operands[0] is forward)
    return found


@pytest.mark.parametrize("bias", [False, True])
def test_both_sides_of_training(*, bias: bool) -> None:
    """The sum is in memory instead of the product, although adding the bias again would cost nothing."""
    module = fused(step(bias=bias), GPU)
    forward, gradient = fusions_of_products(module)
    assert forward.name.startswith("gemm")
    assert gradient.name.startswith("gemm")
    saved = argument_of(gradient, forward)
    assert saved.opcode is Opcode.GET_TUPLE_ELEMENT
    opcodes = {x.opcode for x in forward.to_apply.root.operands}
    assert opcodes == {Opcode.MULTIPLY, Opcode.ADD if bias else Opcode.DOT}
    (reduction,) = (x for x in module.entry.instructions if x.opcode is Opcode.REDUCE)
    assert reduction.operand(0) is gradient


def repeated(text: str) -> str:
    """Return ``text`` with the gradient of the second weight, for which gelu is computed a second time."""
    again = written(FORMS["jax"], "r", "y3")
    dw = "dw = f32[128,256] dot(g, y3), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    text = text.replace("  zero = f32[]", f"  {again}\n  {dw}\n  zero = f32[]")
    results = "f32[128,256], f32[128,256]) tuple(y2, db, dr, dw)"
    return text.replace("f32[128,256]) tuple(y2, db, dr)", results)


@pytest.mark.parametrize("bias", [False, True])
def test_a_repeat_of_gelu_is_the_result_of_the_first_call(*, bias: bool) -> None:
    """The memory scheduler repeats cheap work. Here fusion would move the repeat back, and write gelu twice."""
    text = repeated(step(bias=bias))
    module = fused(text, GPU)
    forward, gradient = fusions_of_products(module)
    assert len(forward.to_apply.root.operands) == 2
    others = [x for x in module.entry.instructions if x.opcode is Opcode.FUSION]
    assert {*others} == {forward, gradient}
    (read,) = (
        x.operand(1)
        for x in module.entry.instructions
        if x.opcode is Opcode.DOT and x.name.startswith("dw")
    )
    assert read.operand(0) is forward
    check_results(module, text)


@pytest.mark.parametrize("bias", [False, True])
def test_the_step_has_the_results_of_the_program(*, bias: bool) -> None:
    check_results(fused(step(bias=bias), GPU), step(bias=bias))


def check_results(module: HloModule, text: str) -> None:
    inputs = random_inputs(module_of(text))
    for got, want in zip(
        evaluate(module, *inputs), evaluate(module_of(text), *inputs), strict=True
    ):
        np.testing.assert_allclose(got, want, 0, 1e-5 * np.abs(want).max())


@pytest.mark.parametrize("bias", [False, True])
def test_processors_do_as_before(*, bias: bool) -> None:
    """A processor computes gelu of a block of a product that is in the cache, and keeps the product."""
    module = fused(step(bias=bias), CPU)
    found = fusions_of_products(module)
    assert found
    assert not any(x.name.startswith("gemm") for x in found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (gelu_program(columns=36).text, 1),
        (gelu_program(columns=36, keeps=True).text, 0),
        (gradient_program(columns=36).text, 0),
        (gelu_program("jax", "f64").text, 0),
    ],
)
def test_what_the_library_takes(text: str, count: int) -> None:
    assert len(fusions_of_products(fused(text, GPU))) == count
