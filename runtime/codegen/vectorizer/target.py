"""The vector registers for which loops over elements are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VectorTarget:
    """Vector registers of a processor. register_bytes: bytes of one of them.

    has_masks: instructions, loads and stores of all types take a mask at no cost, and elements are stored at addresses
    of their own. AVX2 has masks for some types, but a masked store takes processors by AMD a hundred cycles.
    """

    register_bytes: int
    has_masks: bool


AVX512 = VectorTarget(64, has_masks=True)
AVX2 = VectorTarget(32, has_masks=False)


def vector_target(features: str, llvm_version: int) -> VectorTarget | None:
    """Return the registers of a processor with LLVM's ``features`` ("+avx2,-sse4a"), or None if LLVM should vectorize.

    LLVM before version 20 does not parse what is written for them.
    """
    given = set(features.split(","))
    if llvm_version < 20:
        return None
    if given >= {"+avx512bw", "+avx512dq", "+avx512vl"}:
        return AVX512
    return AVX2 if "+avx2" in given else None
