"""Special instructions that the code of element operations may use."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Instructions:
    """Special instructions that a processor has.

    ``fused`` multiplies and adds with one rounding. ``permutes`` selects a vector of numbers from a table of 32 numbers
    in registers. ``scales`` multiplies by a power of two that need not be representable. ``pairs`` multiplies pairs of
    16-bit integers and adds both products to a 32-bit integer. ``rounds`` converts an f32 to bf16, as GPUs do; a nan
    becomes the GPU's own, whose lower half is ones. ``approximates`` computes 2^x and 1 / x of f32 with an error
    of about a unit in the last place, as GPUs do, for functions whose results may have such errors. ``short`` adds and
    multiplies bf16 with one rounding. ``extremes`` computes the larger or smaller of two f32, or nan if one is.
    ``contracts`` computes a multiplication and an addition of one scalar program with one rounding.
    """

    fused: bool = False
    permutes: bool = False
    scales: bool = False
    pairs: bool = False
    rounds: bool = False
    approximates: bool = False
    short: bool = False
    extremes: bool = False
    contracts: bool = False


#: No special instructions, as on every processor.
PLAIN = Instructions()
