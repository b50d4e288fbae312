"""Element operations of attention kernels: every one that passes may fuse has an expression that compiles."""

from __future__ import annotations

import importlib.util

import pytest

from runtime.gpu.triton.compilation import compile_kernel
from runtime.gpu.triton.elements import (
    EXPRESSIONS_ON_FLOATS,
    EXPRESSIONS_ON_INTEGERS,
    EXPRESSIONS_ON_PREDICATES,
)
from runtime.program.attention_operations import ON_FLOATS, ON_INTEGERS, ON_PREDICATES
from spmd.hlo import Opcode
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.running import kernel_of


def test_there_is_an_expression_for_each_operation() -> None:
    assert set(EXPRESSIONS_ON_FLOATS) == ON_FLOATS
    assert set(EXPRESSIONS_ON_INTEGERS) == ON_INTEGERS
    assert set(EXPRESSIONS_ON_PREDICATES) == ON_PREDICATES


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
def test_all_operations_on_floats_compile() -> None:
    case = Attention(g=1, s=16, t=16, d=16, e=16)
    lines, last = [], "scaled"
    for n, opcode in enumerate(sorted(ON_FLOATS, key=lambda opcode: opcode.value)):
        count = 3 if opcode is Opcode.CLAMP else ELEMENTWISE_OPS[opcode].arity
        operands = ", ".join([last, *["qk"] * (count - 1)])
        last = f"y{n}"
        lines.append(f"  {last} = f32[{case.dims}] {opcode.value}({operands})")
    lines.append(f"  x = f32[{case.dims}] add({last}, qk)")
    text = case.forward().replace(
        f"  x = f32[{case.dims}] multiply(qk, scales)",
        "\n".join([f"  scaled = f32[{case.dims}] multiply(qk, scales)", *lines]),
    )
    assert "libdevice.erf" in kernel_of(text).text
    assert compile_kernel(kernel_of(text), "sm_90").asm["cubin"]
