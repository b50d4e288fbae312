"""Functions have the same bits whether or not the processor scales by powers of two in one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from runtime.codegen.ir import element_operations
from runtime.codegen.ir.element_operations import host_instructions
from runtime.cpu.kernels.loop import loop as loop_kernels
from spmd.hlo import Opcode
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.documents.native_math import native

P = PrimitiveType


@pytest.fixture
def _without_scaling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plain = replace(host_instructions(), scales=False)
    monkeypatch.setattr(element_operations, "host_instructions", lambda: plain)
    yield
    loop_kernels.loop_code.cache_clear()


def arguments(kind: PrimitiveType) -> NDArray:
    """Normal, denormal and infinite results of exp, and arguments beyond them."""
    far = 110 if kind is P.F32 else 760
    rng = np.random.default_rng(5)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40]
    return np.concatenate([rng.uniform(-far, far, 50_000), edges]).astype(kind.numpy)


@pytest.mark.skipif(not host_instructions().scales, reason="the host has no such instruction")
@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("opcode", [Opcode.EXPONENTIAL, Opcode.LOGISTIC, Opcode.SINH, Opcode.COSH])
def test_powers_of_two(opcode: Opcode, kind: PrimitiveType, request: pytest.FixtureRequest) -> None:
    x = arguments(kind)
    scaled = native(opcode, kind, [x])
    loop_kernels.loop_code.cache_clear()
    request.getfixturevalue("_without_scaling")
    np.testing.assert_array_equal(native(opcode, kind, [x]), scaled)
