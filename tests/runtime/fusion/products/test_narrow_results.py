"""On a GPU a product's result is narrowed in the call of the product, and the rest is computed of the narrow array."""

from __future__ import annotations

import pytest

from runtime.fusion.priority_fusion import PriorityFusion
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.machine.named import machine_named
from spmd.verifier import verify
from tests.runtime.fusion.products.test_library_epilogues import CPU, GPU
from tests.runtime.programs.build import module_of

#: The mask and the quantized relu of a scaled product, as the forward pass of a layer in fp8 stores them.
TWO_READERS = """
  m = pred[64,256] compare(y, zero), direction=GT
  r = bf16[64,256] maximum(y, zero)
  q = f8e4m3fn[64,256] convert(r)
  ROOT t = (pred[64,256], f8e4m3fn[64,256]) tuple(m, q)"""
#: The quantized gradient of relu.
ONE_READER = """
  k = pred[64,256] parameter(3)
  g = bf16[64,256] select(k, y, zero)
  ROOT q = f8e4m3fn[64,256] convert(g)"""


def program(rest: str) -> HloModule:
    return module_of(f"""HloModule layer

ENTRY e {{
  x = f8e4m3fn[64,128] parameter(0)
  w = f8e4m3fn[128,256] parameter(1)
  s = f32[] parameter(2)
  d = f32[64,256] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sb = f32[64,256] broadcast(s), dimensions={{}}
  ds = f32[64,256] multiply(d, sb)
  y = bf16[64,256] convert(ds)
  z = bf16[] constant(0)
  zero = bf16[64,256] broadcast(z), dimensions={{}}
  {rest}
}}
""")


def fused(module: HloModule, machine: PriorityFusion) -> list[HloInstruction]:
    machine.run(module)
    verify(module)
    return [x for x in module.entry.instructions if x.opcode is Opcode.FUSION]


def holding_products(fusions: list[HloInstruction]) -> list[HloInstruction]:
    return [x for x in fusions if any(y.opcode is Opcode.DOT for y in x.to_apply.instructions)]


@pytest.mark.parametrize("rest", [TWO_READERS, ONE_READER])
def test_a_product_is_narrowed_in_its_call(rest: str) -> None:
    fusions = fused(program(rest), PriorityFusion(machine=machine_named(GPU)))
    (product,) = holding_products(fusions)
    assert product.array_shape.element_type.value == "bf16"
    (other,) = (x for x in fusions if x is not product)
    assert product in other.operands
    assert all(x.opcode is not Opcode.DOT for x in other.to_apply.instructions)


def test_relu_stays_in_the_call() -> None:
    """The rest begins with relu, which the library computes, and no other instruction reads its operand."""
    rest = """
  r = bf16[64,256] maximum(y, zero)
  e = bf16[64,256] exponential(r)
  ROOT q = f8e4m3fn[64,256] convert(e)"""
    fusions = fused(program(rest), PriorityFusion(machine=machine_named(GPU)))
    (product,) = holding_products(fusions)
    opcodes = {x.opcode for x in product.to_apply.instructions}
    assert Opcode.MAXIMUM in opcodes
    assert Opcode.EXPONENTIAL not in opcodes


def test_on_a_cpu_the_rest_is_one_kernel() -> None:
    fusions = fused(program(ONE_READER), PriorityFusion(machine=machine_named(CPU)))
    assert len(fusions) == 1
