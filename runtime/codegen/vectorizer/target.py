"""Vector registers of the processor for which loops over elements are written."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class VectorTarget:
    """Vector registers of a processor, of ``register_bytes`` bytes each.

    ``has_masks`` tells that instructions, loads and stores of all types take a mask at no cost, and that there are
    scatters. AVX2 has masked stores for some types only; with them, rows of 6 numbers took 8 times as long (Zen 3).
    """

    register_bytes: int
    has_masks: bool


AVX512 = VectorTarget(64, has_masks=True)
AVX2 = VectorTarget(32, has_masks=False)


def vector_target(features: str) -> VectorTarget | None:
    """Return the vector registers of a processor with LLVM's ``features`` ("+avx2,-sse4a").

    Returns None if LLVM must vectorize.
    """
    given = set(features.split(","))
    if given >= {"+avx512bw", "+avx512dq", "+avx512vl"}:
        return AVX512
    return AVX2 if "+avx2" in given else None
