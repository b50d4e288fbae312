"""Products that read slices where they lie: at any start, of any side, with what is computed of them, and in loops."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from runtime.cpu.kernels.gemm import sliced_product
from runtime.fusion.emitters import emitter_of
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.program.records.dot import SlicedProductKernel
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import Opcode
from tests.runtime.fusion.reasons import why_not
from tests.runtime.fusion.test_loop_fusions import kernels
from tests.runtime.programs.build import compiled, module_of, random_inputs

#: The right side is layer i of stacked weights; m, k and n of a small product, of one for BLAS, of a vector.
RIGHT = """
fused {
  x = T[M,K] parameter(0)
  w = T[4,K,N] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  d = T[1,K,N] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,K,N}
  r = T[K,N] reshape(d)
  ROOT y = T[M,N] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY e {
  x = T[M,K] parameter(0)
  w = T[4,K,N] parameter(1)
  i = s32[] parameter(2)
  ROOT f = T[M,N] fusion(x, w, i), kind=kOutput, calls=fused
}
"""

#: The left side is a batch of a stack, turned; its start is computed, and a second one moves its columns.
LEFT = """
fused {
  w = T[4,2,K,9,M] parameter(0)
  i = s32[] parameter(1)
  x = T[2,N,K] parameter(2)
  z = s32[] constant(0)
  l = s32[] constant(3)
  n = s32[] subtract(l, i)
  d = T[1,2,K,1,M] dynamic-slice(w, n, z, z, i, z), dynamic_slice_sizes={1,2,K,1,M}
  r = T[2,K,M] reshape(d)
  ROOT y = T[2,M,N] dot(r, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={2}
}

ENTRY e {
  w = T[4,2,K,9,M] parameter(0)
  i = s32[] parameter(1)
  x = T[2,N,K] parameter(2)
  ROOT f = T[2,M,N] fusion(w, i, x), kind=kOutput, calls=fused
}
"""

#: Both sides, and what is computed of the product, which reads the stack of the left one, too.
BOTH = """
fused {
  v = T[4,M,K] parameter(0)
  w = T[4,N,K] parameter(1)
  i = s32[] parameter(2)
  j = s64[] parameter(3)
  z = s32[] constant(0)
  zz = s64[] constant(0)
  a = T[1,M,K] dynamic-slice(v, i, z, z), dynamic_slice_sizes={1,M,K}
  b = T[1,N,K] dynamic-slice(w, j, zz, zz), dynamic_slice_sizes={1,N,K}
  ar = T[M,K] reshape(a)
  br = T[N,K] reshape(b)
  y = T[M,N] dot(ar, br), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  s = T[1,M,1] dynamic-slice(v, z, z, i), dynamic_slice_sizes={1,M,1}
  sr = T[M] reshape(s)
  sb = T[M,N] broadcast(sr), dimensions={0}
  t = T[M,N] add(y, sb)
  ROOT o = T[M,N] negate(t)
}

ENTRY e {
  v = T[4,M,K] parameter(0)
  w = T[4,N,K] parameter(1)
  i = s32[] parameter(2)
  j = s64[] parameter(3)
  ROOT f = T[M,N] fusion(v, w, i, j), kind=kOutput, calls=fused
}
"""

SIZES = [(3, 5, 7), (33, 129, 70), (1, 40, 64), (130, 16, 1)]


def text_of(template: str, kind: str, sizes: tuple[int, int, int]) -> str:
    for letter, size in zip("MKN", sizes, strict=True):
        for before in "[,{":
            for after in "],}":
                for _ in range(2):
                    template = template.replace(
                        f"{before}{letter}{after}", f"{before}{size}{after}"
                    )
    return "HloModule m\n" + template.replace("T[", f"{kind}[")


def check(text: str, starts: list[int]) -> object:
    """``starts``: values of all scalar inputs, one after the other; the kernel that was run."""
    module = module_of(text)
    assert emitter_of(module.entry.root) == "product", why_not(module.entry.root)
    executable = compiled(text)
    (kernel,) = kernels(executable)
    inputs = random_inputs(module, 0)
    for start in starts:
        values = [np.full_like(x, start) if x.ndim == 0 else x for x in inputs]
        (want,), (got,) = evaluate(module_of(text), *values), executable.run(*values)
        tolerance = 3e-2 if want.dtype.itemsize == 2 else 3e-5
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), tolerance, tolerance
        )
    return kernel


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("template", [RIGHT, LEFT])
def test_slices_begin_where_the_indices_say_and_within_the_array(
    template: str, sizes: tuple[int, int, int], kind: str
) -> None:
    assert isinstance(check(text_of(template, kind, sizes), [0, 2, 3, 7, -5]), SlicedProductKernel)


@pytest.mark.parametrize("sizes", [(5, 7, 3), (300, 40, 1000)])
def test_with_what_is_computed_of_it(sizes: tuple[int, int, int]) -> None:
    assert isinstance(check(text_of(BOTH, "f32", sizes), [0, 3, 9]), ProductEpilogueKernel)


def test_without_native_products_slices_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_product, "native_product", lambda *_: None)
    check(text_of(RIGHT, "f32", (33, 129, 70)), [0, 3])
    check(text_of(LEFT, "bf16", (33, 129, 70)), [0, 3])


REFUSED = {
    "by itself": """
  d = f32[1,4,4] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,4,4}
  e = f32[1,4,4] dynamic-slice(w, z, z, z), dynamic_slice_sizes={1,4,4}
  r = f32[4,4] reshape(d)
  q = f32[4,4] reshape(e)
  ROOT y = f32[4,4] dot(r, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "computed": """
  n = f32[4,4,4] negate(w)
  d = f32[1,4,4] dynamic-slice(n, i, z, z), dynamic_slice_sizes={1,4,4}
  r = f32[4,4] reshape(d)
  ROOT y = f32[4,4] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "as it lies": """
  d = f32[2,4,2] dynamic-slice(w, i, z, z), dynamic_slice_sizes={2,4,2}
  r = f32[2,8] reshape(d)
  ROOT y = f32[4,8] dot(v, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_there_is_no_kernel_for(reason: str) -> None:
    module = module_of(
        f"""HloModule m
fused {{
  x = f32[4,4] parameter(0)
  v = f32[4,2] parameter(1)
  w = f32[4,4,4] parameter(2)
  i = s32[] parameter(3)
  z = s32[] constant(0){REFUSED[reason]}
}}
ENTRY e {{
  x = f32[4,4] parameter(0)
  v = f32[4,2] parameter(1)
  w = f32[4,4,4] parameter(2)
  i = s32[] parameter(3)
  ROOT f = f32[4,4] fusion(x, v, w, i), kind=kOutput, calls=fused
}}
""".replace("f = f32[4,4]", "f = f32[4,8]" if reason == "as it lies" else "f = f32[4,4]")
    )
    assert reason in why_not(module.entry.root)


LAYERS = """HloModule layers
less {
  s = (s32[], f32[32,64], f32[5,64,64], f32[5,32,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
again {
  s = (s32[], f32[32,64], f32[5,64,64], f32[5,32,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[32,64] get-tuple-element(s), index=1
  w = f32[5,64,64] get-tuple-element(s), index=2
  kept = f32[5,32,64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  d = f32[1,64,64] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,64,64}
  layer = f32[64,64] reshape(d)
  y = f32[32,64] dot(x, layer), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[1,32,64] dynamic-slice(kept, i, z, z), dynamic_slice_sizes={1,32,64}
  before = f32[32,64] reshape(b)
  q = f32[32,32] dot(y, before), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  v = f32[32,64] dot(q, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(v)
  flat = f32[1,32,64] reshape(t)
  saved = f32[5,32,64] dynamic-update-slice(kept, flat, i, z, z)
  ROOT r = (s32[], f32[32,64], f32[5,64,64], f32[5,32,64]) tuple(j, t, w, saved)
}
ENTRY e {
  x = f32[32,64] parameter(0)
  w = f32[5,64,64] parameter(1)
  k = f32[5,32,64] parameter(2)
  zero = s32[] constant(0)
  s = (s32[], f32[32,64], f32[5,64,64], f32[5,32,64]) tuple(zero, x, w, k)
  ROOT loop = (s32[], f32[32,64], f32[5,64,64], f32[5,32,64]) while(s), condition=less, body=again
}
"""


def test_a_loop_reads_its_layers_where_they_lie_but_not_what_it_writes() -> None:
    """``kept`` is written over in the same trip, so that its slice is taken before."""
    module = module_of(LAYERS)
    assert PriorityFusion().run(module)
    body = next(x for x in module.entry.instructions if x.opcode is Opcode.WHILE).while_body
    sliced = [
        x.operand(0).attrs.index  # type: ignore[attr-defined]
        for x in body.instructions
        if x.opcode is Opcode.DYNAMIC_SLICE
    ]
    assert sliced == [3]
    inputs = random_inputs(module_of(LAYERS), 0)
    inputs = [np.float32(0.05) * x for x in inputs]
    want = evaluate(module_of(LAYERS), *inputs)
    executable = spmd.compile(spmd.parse(LAYERS))
    for got, wanted in zip(executable.run(*inputs), want, strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-5)
