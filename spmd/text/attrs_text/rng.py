"""rng, rng-bit-generator, rng-get-and-update-state."""

from __future__ import annotations

from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import RngAttrs, RngBitGeneratorAttrs, RngStateAttrs
from spmd.text.attrs_text.registry import attrs_text

_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")

attrs_text(
    Opcode.RNG,
    read=lambda values: RngAttrs(
        values.need_word("distribution", ("rng_uniform", "rng_normal"), ignore_case=True)
    ),
    write=lambda out, instruction: out.add(
        "distribution", instruction.attrs_as(RngAttrs).distribution
    ),
)
attrs_text(
    Opcode.RNG_BIT_GENERATOR,
    read=lambda values: RngBitGeneratorAttrs(
        values.need_word("algorithm", _ALGORITHMS, ignore_case=True)
    ),
    write=lambda out, instruction: out.add(
        "algorithm", instruction.attrs_as(RngBitGeneratorAttrs).algorithm
    ),
)
attrs_text(
    Opcode.RNG_GET_AND_UPDATE_STATE,
    read=lambda values: RngStateAttrs(values.need_integer("delta")),
    write=lambda out, instruction: out.add("delta", instruction.attrs_as(RngStateAttrs).delta),
)
