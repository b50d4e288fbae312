"""A product and what is computed of it are one kernel, and give what the evaluator gives, in bands of any sizes."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.fusion import plan_cache
from runtime.fusion.emitters import emitter_of
from runtime.fusion.products import product_fusion
from runtime.program.blocks import blocks_of, full_box
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from spmd.evaluator.evaluator import evaluate
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.fusion.reasons import why_not
from tests.runtime.fusion.test_loop_fusions import kernels
from tests.runtime.programs.build import compiled, module_of, random_inputs

SUM = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

#: Bias and activation; what is added lies elsewhere.
DENSE = """
fused {
  x = f32[M,K] parameter(0)
  w = f32[K,N] parameter(1)
  b = f32[N] parameter(2)
  r = f32[M,N] parameter(3)
  y = f32[M,N] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[M,N] broadcast(b), dimensions={1}
  s = f32[M,N] add(y, bs)
  t = f32[M,N] tanh(s)
  ROOT o = f32[M,N] add(t, r)
}

ENTRY e {
  x = f32[M,K] parameter(0)
  w = f32[K,N] parameter(1)
  b = f32[N] parameter(2)
  r = f32[M,N] parameter(3)
  ROOT f = f32[M,N] fusion(x, w, b, r), kind=kOutput, calls=fused
}
"""

#: The product is a result, too, and lhs lies the other way; its rows are two dimensions.
KEPT = """
fused {
  x = f32[K,S,M] parameter(0)
  w = f32[N,K] parameter(1)
  y = f32[S,M,N] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  n = f32[S,M,N] negate(y)
  ROOT t = (f32[S,M,N], f32[S,M,N]) tuple(n, y)
}

ENTRY e {
  x = f32[K,S,M] parameter(0)
  w = f32[N,K] parameter(1)
  ROOT f = (f32[S,M,N], f32[S,M,N]) fusion(x, w), kind=kOutput, calls=fused
}
"""

#: Several products, and softmax of their rows.
SCORES = (
    SUM
    + """
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

fused {
  q = f32[S,M,K] parameter(0)
  k = f32[S,N,K] parameter(1)
  y = f32[S,M,N] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  i = f32[] constant(-inf)
  z = f32[] constant(0)
  m = f32[S,M] reduce(y, i), dimensions={2}, to_apply=max
  mb = f32[S,M,N] broadcast(m), dimensions={0,1}
  d = f32[S,M,N] subtract(y, mb)
  e = f32[S,M,N] exponential(d)
  s = f32[S,M] reduce(e, z), dimensions={2}, to_apply=add
  sb = f32[S,M,N] broadcast(s), dimensions={0,1}
  ROOT o = f32[S,M,N] divide(e, sb)
}

ENTRY e {
  q = f32[S,M,K] parameter(0)
  k = f32[S,N,K] parameter(1)
  ROOT f = f32[S,M,N] fusion(q, k), kind=kOutput, calls=fused
}
"""
)

#: Masked, and the columns summed.
COLUMNS = (
    SUM
    + """
fused {
  x = f32[M,K] parameter(0)
  w = f32[K,N] parameter(1)
  p = pred[M,N] parameter(2)
  y = f32[M,N] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  zs = f32[M,N] broadcast(z), dimensions={}
  m = f32[M,N] select(p, y, zs)
  s = f32[N] reduce(m, z), dimensions={0}, to_apply=add
  ROOT t = (f32[M,N], f32[N]) tuple(m, s)
}

ENTRY e {
  x = f32[M,K] parameter(0)
  w = f32[K,N] parameter(1)
  p = pred[M,N] parameter(2)
  ROOT f = (f32[M,N], f32[N]) fusion(x, w, p), kind=kOutput, calls=fused
}
"""
)

#: Other types in and out: a machine without a unit for bf16 converts through scratch.
NARROW = """
fused {
  x = bf16[S,M,K] parameter(0)
  w = bf16[S,K,N] parameter(1)
  y = f32[S,M,N] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  m = f32[S,M,N] multiply(y, y)
  ROOT o = bf16[S,M,N] convert(m)
}

ENTRY e {
  x = bf16[S,M,K] parameter(0)
  w = bf16[S,K,N] parameter(1)
  ROOT f = bf16[S,M,N] fusion(x, w), kind=kOutput, calls=fused
}
"""

SIZES = [
    {"S": 1, "M": 2, "N": 3, "K": 1},
    {"S": 2, "M": 5, "N": 7, "K": 3},
    {"S": 3, "M": 33, "N": 70, "K": 129},
    {"S": 2, "M": 130, "N": 65, "K": 16},
]


def module_text(template: str, sizes: dict[str, int]) -> str:
    for letter, size in sizes.items():
        for before in "[,":
            for after in "],":
                for _ in range(2):
                    template = template.replace(
                        f"{before}{letter}{after}", f"{before}{size}{after}"
                    )
    return f"HloModule m\n{template}"


def check(text: str) -> ProductEpilogueKernel:
    module = module_of(text)
    assert emitter_of(module.entry.root) == "product", why_not(module.entry.root)
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, ProductEpilogueKernel)
    inputs = random_inputs(module, 0)
    wanted = evaluate(module_of(text), *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        tolerance = 3e-2 if want.dtype.itemsize == 2 else 3e-5
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), tolerance, tolerance
        )
    return kernel


@pytest.mark.parametrize("band_bytes", [64, 4096, 1 << 20])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes.values())))
@pytest.mark.parametrize("template", [DENSE, KEPT, SCORES, COLUMNS, NARROW])
def test_bands(
    template: str, sizes: dict[str, int], band_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_fusion, "BLOCK_BYTES", band_bytes)
    monkeypatch.setattr(product_fusion, "MOST_BYTES", band_bytes)
    monkeypatch.setattr(product_fusion, "LEAST_LINES", 4)
    plan_cache._plan_of.cache_clear()
    kernel = check(module_text(template, sizes))
    plan_cache._plan_of.cache_clear()
    is_small = 4 * int(np.prod(kernel.dims)) <= band_bytes
    assert (len(list(kernel.blocks)) == 1) == (is_small or max(sizes.values()) <= 4)


REFUSED = {
    "read elsewhere": """
  y = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,4] transpose(y), dimensions={1,0}
  ROOT o = f32[4,4] add(t, w)""",
    "operand computed": """
  n = f32[4,4] negate(x)
  y = f32[4,4] dot(n, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT o = f32[4,4] negate(y)""",
    "two products": """
  y = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[4,4] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT o = f32[4,4] add(y, z)""",
    "by itself": """
  y = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT o = f32[4,4] add(y, w)""",
}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("read elsewhere", "y is read at other indices than it has"),
        ("operand computed", "an operand of y is computed in the same kernel"),
        ("two products", "a kernel makes one product"),
        ("by itself", "y multiplies an array by itself"),
    ],
)
def test_refusals_say_why(what: str, reason: str) -> None:
    text = f"""
fused {{
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1){REFUSED[what]}
}}

ENTRY e {{
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  ROOT f = f32[4,4] fusion(x, w), kind=kOutput, calls=fused
}}
"""
    assert why_not(module_of(f"HloModule m\n{text}").entry.root) == reason


@pytest.mark.parametrize(
    ("dims", "batch", "rows", "cut", "band"),
    [
        ((4, 320, 1024), 1, 1, (0, 1, 2), (1, 320, 1024)),
        ((16, 128, 128), 1, 1, (0, 1, 2), (16, 128, 128)),
        ((32, 128, 128), 1, 1, (0, 1, 2), (16, 128, 128)),
        ((2048, 1024), 0, 1, (0, 1), (256, 1024)),
        ((1024, 2048), 0, 1, (0, 1), (1024, 256)),
        ((1024, 2048), 0, 1, (0,), (128, 2048)),
        ((3, 700, 2, 512), 0, 2, (0, 1, 2, 3), (1, 256, 2, 512)),
        ((2, 2000, 1000), 1, 1, (0, 1, 2), (1, 256, 1000)),
    ],
)
def test_band_sizes(
    dims: tuple[int, ...],
    batch: int,
    rows: int,
    cut: tuple[int, ...],
    band: tuple[int, ...],
) -> None:
    shape = ArrayShape(PrimitiveType.F32, dims)
    assert product_fusion.block_sizes(shape, batch, rows, frozenset(cut)) == band
    parts = list(blocks_of(full_box(dims), band))
    assert sum(int(np.prod([b - a for a, b in box])) for box in parts) == int(np.prod(dims))
