"""On processors with AVX2 alone, products that are cut where ``cut_multiples`` allows it have the bits of the whole.

Elsewhere tests/runtime/cpu/sharing compares the bits of kernels: BLAS has functions of its own for small products there, to
which pieces must not go, as runtime/cpu/sharing sees to it.
"""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.libraries.blas import BlasThreads, CutMultiples, cut_multiples
from spmd.shape import PrimitiveType

pytestmark = pytest.mark.skipif(
    cut_multiples(PrimitiveType.F32) != CutMultiples(96, 0),
    reason="OpenBLAS's kernels here are not those for AVX2",
)
SIZES = ((512, 512, 512), (1024, 300, 770), (300, 700, 500), (2000, 64, 100), (291, 129, 1000))


@pytest.mark.parametrize("kind", [PrimitiveType.F32, PrimitiveType.F64])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_cut_products_keep_their_bits(
    sizes: tuple[int, int, int], turned: tuple[bool, bool], kind: PrimitiveType
) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m + n)
    lhs, rhs = (
        rng.standard_normal(dims[::-1] if turn else dims).astype(kind.numpy)
        for dims, turn in zip(((m, k), (k, n)), turned, strict=True)
    )
    lhs, rhs = (x.T if turn else x for x, turn in zip((lhs, rhs), turned, strict=True))
    multiples = cut_multiples(kind)
    with BlasThreads(1):
        whole = lhs @ rhs
        for lines in (multiples.slow, 2 * multiples.slow):
            parts = [lhs[start : start + (lines or m)] @ rhs for start in range(0, m, lines or m)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)
        for lines in (multiples.fast, 3 * multiples.fast):
            parts = [
                lhs @ rhs[:, start : start + (lines or n)] for start in range(0, n, lines or n)
            ]
            np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
