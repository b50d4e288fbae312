"""rng, rng-bit-generator, rng-get-and-update-state."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import RngAttrs, RngBitGeneratorAttrs, RngStateAttrs
from spmd.proto.attrs_proto.registry import attrs_proto
from spmd.proto.enums import DISTRIBUTIONS, RNG_ALGORITHMS
from spmd.proto.schema.hlo import HloInstructionProto


def _write_rng(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.distribution = DISTRIBUTIONS.number(instruction.attrs_as(RngAttrs).distribution)


def _write_generator(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    algorithm = instruction.attrs_as(RngBitGeneratorAttrs).algorithm
    proto.rng_algorithm = RNG_ALGORITHMS.number(algorithm)


def _write_state(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.delta = instruction.attrs_as(RngStateAttrs).delta


attrs_proto(
    Opcode.RNG,
    read=lambda values: RngAttrs(DISTRIBUTIONS.value(values.proto.distribution)),
    write=_write_rng,
)
attrs_proto(
    Opcode.RNG_BIT_GENERATOR,
    read=lambda values: RngBitGeneratorAttrs(RNG_ALGORITHMS.value(values.proto.rng_algorithm)),
    write=_write_generator,
)
attrs_proto(
    Opcode.RNG_GET_AND_UPDATE_STATE,
    read=lambda values: RngStateAttrs(values.proto.delta),
    write=_write_state,
)
