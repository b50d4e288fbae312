"""Tests that functions are as accurate on processors without fused multiply-add, and call no library there."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.ir import element_operations
from runtime.codegen.ir.element_operations import operation_ir
from runtime.codegen.llvm.jit import Jit
from runtime.cpu.kernels.loop import loop as loop_kernels
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.documents.native_math import FUNCTIONS, HAS_EXTENDED, Function, worst

P = PrimitiveType
#: Those that multiply exactly, or whose reductions do.
REDUCING = [
    function
    for function in FUNCTIONS
    if function.opcode
    in (Opcode.EXPONENTIAL, Opcode.EXPONENTIAL_MINUS_ONE, Opcode.LOG, Opcode.LOG_PLUS_ONE)
    or function.opcode in (Opcode.SINE, Opcode.COSINE, Opcode.TAN, Opcode.POWER, Opcode.ATAN2)
]


@pytest.fixture
def _plain_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """x86-64 of 2009, with SSE 4.2."""
    jit = Jit(("x86-64-v2", ""))
    monkeypatch.setattr(element_operations, "host_instructions", Instructions)
    monkeypatch.setattr(loop_kernels, "host_jit", lambda: jit)
    loop_kernels.loop_code.cache_clear()
    yield
    loop_kernels.loop_code.cache_clear()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an x86 processor")
@pytest.mark.usefixtures("_plain_processor")
@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("function", REDUCING, ids=lambda function: function.opcode.value)
def test_accuracy(function: Function, kind: PrimitiveType) -> None:
    if kind is P.F64 and not HAS_EXTENDED:
        pytest.skip("takes long where 80-bit numbers do not hold the exact values")
    found = worst(function, kind, 1 << 14)
    assert found.ulps <= 2.5, found


@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.opcode.value)
def test_no_fused_operation_is_asked_for(function: Function, kind: PrimitiveType) -> None:
    """LLVM would call the C library's."""
    signature = ElementSignature(function.opcode, (kind,) * function.arity, kind)
    assert "@llvm.fma." not in "\n".join(operation_ir(signature, instructions=Instructions()))
