"""Floats of 8 bits and fewer become f32 and come back as ml_dtypes has them, in every bit."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.evaluator.conversion import convert
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

P = PrimitiveType
SMALL = [kind for kind in PrimitiveType if kind.is_floating and kind.bits <= 8]


def converted(x: np.ndarray, kind: PrimitiveType) -> np.ndarray:
    source = PrimitiveType.from_numpy(x.dtype)
    out = np.empty(x.shape, kind.numpy)
    bind_operation(ElementSignature(Opcode.CONVERT, (source,), kind), (x,), out)()
    return out


@pytest.mark.parametrize("kind", SMALL)
def test_every_number_to_f32(kind: PrimitiveType) -> None:
    x = np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)
    want, got = x.astype(np.float32), converted(x, P.F32)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    assert got[~nan].tobytes() == want[~nan].tobytes()


@pytest.mark.parametrize("kind", SMALL)
def test_every_upper_half_of_an_f32_and_its_neighbours(kind: PrimitiveType) -> None:
    """Ties between two numbers have their lower half zero; what lies next to them goes to the one or the other."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    x = np.concatenate([upper, upper + 1, upper - 1, upper | 0x8000]).view(np.float32)
    with np.errstate(all="ignore"):
        want = convert(x, kind)
    got = converted(x, kind)
    different = got.view(np.uint8) != want.view(np.uint8)
    assert not different.any(), (x[different][:5], got[different][:5], want[different][:5])
