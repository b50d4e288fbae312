"""The vector registers for which loops over elements are written."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class VectorTarget:
    """Vector registers of a processor. register_bytes: bytes of one of them.

    has_masks: instructions, loads and stores of all types take a mask at no cost, and elements are stored at addresses
    of their own. AVX2 has masked stores for some types, with which rows of 6 numbers took 8 times as long (Zen 3).
    """

    register_bytes: int
    has_masks: bool


AVX512 = VectorTarget(64, has_masks=True)
AVX2 = VectorTarget(32, has_masks=False)


def vector_target(features: str) -> VectorTarget | None:
    """Return the registers of a processor with LLVM's ``features`` ("+avx2,-sse4a"), or None if LLVM vectorizes."""
    given = set(features.split(","))
    if given >= {"+avx512bw", "+avx512dq", "+avx512vl"}:
        return AVX512
    return AVX2 if "+avx2" in given else None
