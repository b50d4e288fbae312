"""On a GPU a bias that fusion would compute inside a kernel is a kernel of its own, so that a library adds it."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloInstruction, HloModule, Opcode
from tests.runtime.fusion.products.test_gelu_products import fused
from tests.runtime.fusion.products.test_library_epilogues import GPU, fusions_of_products
from tests.runtime.programs import random_inputs
from tests.runtime.programs.build import module_of

LAYER = """HloModule layer

ENTRY e {
  x = bf16[64,32] parameter(0)
  w = bf16[32,48] parameter(1)
  BIAS
  d = bf16[64,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = bf16[64,48] broadcast(b), dimensions={1}
  s = bf16[64,48] add(d, bs)
  z1 = bf16[] constant(0)
  z = bf16[64,48] broadcast(z1), dimensions={}
  ROOT o = bf16[64,48] maximum(s, z)
}
"""
#: In the type of a parameter; the part of one of several devices; a sum of two.
BIASES = {
    "converted": """
  b32 = f32[48] parameter(2)
  b = bf16[48] convert(b32)""",
    "sliced": """
  all = bf16[96] parameter(2)
  i = u32[] parameter(3)
  n = u32[] constant(2)
  r = u32[] remainder(i, n)
  k = u32[] constant(48)
  o1 = u32[] multiply(r, k)
  b = bf16[48] dynamic-slice(all, o1), dynamic_slice_sizes={48}""",
    "added": """
  b0 = bf16[48] parameter(2)
  b1 = bf16[48] parameter(3)
  b01 = bf16[48] add(b0, b1)
  b = bf16[48] negate(b01)""",
}


def layer(name: str) -> str:
    return LAYER.replace("BIAS", BIASES[name].strip())


def kernels(module: HloModule) -> list[HloInstruction]:
    """Return the instructions of the entry that compute something."""
    free = {Opcode.PARAMETER, Opcode.CONSTANT, Opcode.BROADCAST}
    return [x for x in module.entry.instructions if x.opcode not in free]


@pytest.mark.parametrize("name", BIASES)
def test_the_bias_is_a_kernel_of_its_own(name: str) -> None:
    module = fused(layer(name), GPU)
    vector, call = kernels(module)
    assert (vector.dims, call.name.split(".")[0]) == ((48,), "gemm_maximum_fusion")
    assert vector in call.operands
    assert len(call.operands) == 3
    inputs = random_inputs(module_of(layer(name)))
    (got,), (want,) = evaluate(module, *inputs), evaluate(module_of(layer(name)), *inputs)
    np.testing.assert_array_equal(got, want)


def test_a_vector_stays_where_the_library_adds_none() -> None:
    """The maximum with another number is no activation."""
    text = layer("converted").replace("z1 = bf16[] constant(0)", "z1 = bf16[] constant(1)")
    module = fused(text, GPU)
    assert not fusions_of_products(module)
    (kernel,) = (x for x in kernels(module) if x.opcode is Opcode.FUSION)
    assert Opcode.CONVERT in {x.opcode for x in kernel.to_apply.instructions}
