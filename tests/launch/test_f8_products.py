"""Programs trained in fp8: GPUs multiply the quantized values, which are gathered in 8 bits; CPUs run what is written."""

from __future__ import annotations

import pytest

from launch.options import CompileOptions
from launch.pipeline import partition, stages
from spmd.hlo import HloModule, Opcode
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

F8 = PrimitiveType.F8E4M3FN

#: A product whose weight each device has a part of; both operands are quantized and dequantized.
STEP = """HloModule step, num_partitions=4

ENTRY main {
  x = f8e4m3fn[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  w = bf16[64,128] parameter(1), sharding={devices=[4,1]<=[4]}
  s = f32[1] parameter(2), sharding={replicated}
  t = f32[1] parameter(3), sharding={replicated}
  xw = bf16[64,64] convert(x)
  sc = bf16[1] convert(s)
  sr = bf16[] reshape(sc)
  sb = bf16[64,64] broadcast(sr), dimensions={}
  xs = bf16[64,64] multiply(xw, sb)
  tc = bf16[1] convert(t)
  tr = bf16[] reshape(tc)
  tb = bf16[64,128] broadcast(tr), dimensions={}
  wq = bf16[64,128] divide(w, tb)
  w8 = f8e4m3fn[64,128] convert(wq)
  ww = bf16[64,128] convert(w8)
  ws = bf16[64,128] multiply(ww, tb)
  ROOT y = bf16[64,128] dot(xs, ws), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[4,1]<=[4]}
}
"""


def after(stage: str, machine: str) -> HloModule:
    found = stages(parse_module(STEP), 4, CompileOptions(machine=machine_named(machine)))
    return next(compilation.module for name, compilation in found if name == stage)


@pytest.mark.parametrize("machine", ["dgx-h100", "dgx-h200", "gb200-nvl72"])
def test_quantized_values_are_gathered_and_multiplied(machine: str) -> None:
    module = after("partitioned", machine)
    (gather,) = (x for x in module.all_instructions() if x.opcode is Opcode.ALL_GATHER)
    assert gather.array_shape.element_type is F8
    (product,) = (x for x in module.all_instructions() if x.opcode is Opcode.DOT)
    assert {x.array_shape.element_type for x in product.operands} == {F8}


@pytest.mark.parametrize("machine", ["cpu-avx512", "dgx-a100"])
def test_machines_without_8_bit_products_run_what_is_written(machine: str) -> None:
    module = after("optimized", machine)
    (product,) = (x for x in module.all_instructions() if x.opcode is Opcode.DOT)
    assert {x.array_shape.element_type for x in product.operands} == {PrimitiveType.BF16}


def test_a_partitioned_program_has_the_products_of_its_machine() -> None:
    """`spmd simulate --data-parallel 2` adds replicas to it."""
    module = partition(parse_module(STEP), 4, CompileOptions(machine=machine_named("dgx-h100")))
    (product,) = (x for x in module.all_instructions() if x.opcode is Opcode.DOT)
    assert {x.array_shape.element_type for x in product.operands} == {F8}


def test_the_given_module_does_not_change() -> None:
    module = parse_module(STEP)
    before = str(module)
    options = CompileOptions(machine=machine_named("dgx-h100"))
    *_, _ = stages(module, 4, options)
    assert str(module) == before
