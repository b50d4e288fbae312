"""Random numbers: rng (stateful), rng-bit-generator (state in, state out), rng-get-and-update-state."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import RngAttrs, RngBitGeneratorAttrs
from spmd.ops.checks import bare, operand_array, result_elements, same_type
from spmd.ops.leaf import infer_free
from spmd.ops.opdef import OpCost, always, define
from spmd.shape import ArrayShape, PrimitiveType, Shape, as_array, leaves

_ALGORITHMS = ("rng_three_fry", "rng_philox", "rng_default")


def verify_rng(instruction: HloInstruction) -> None:
    if instruction.attrs_as(RngAttrs).distribution not in ("rng_uniform", "rng_normal"):
        raise ShapeError(f"unknown distribution {instruction.attrs_as(RngAttrs).distribution}")
    for i in range(2):
        parameter = operand_array(instruction, i)
        if parameter.dims or parameter.element_type is not instruction.array_shape.element_type:
            raise ShapeError(
                f"the distribution's parameters are scalars of the result's type, found {parameter}"
            )

    distribution, kind = (
        instruction.attrs_as(RngAttrs).distribution,
        instruction.array_shape.element_type,
    )
    if kind.is_complex or (distribution == "rng_normal" and not kind.is_floating):
        raise ShapeError(f"{distribution} does not draw {kind}")


def infer_rng_state(_: HloInstruction) -> Shape:
    """Return the shape of the 128 bits of the state."""
    return bare(PrimitiveType.U64, (2,))


def verify_rng_bit_generator(instruction: HloInstruction) -> None:
    """Check (new state, bits), or the bits alone: the new state has the shape of the old one."""
    if instruction.attrs_as(RngBitGeneratorAttrs).algorithm not in _ALGORITHMS:
        raise ShapeError(
            f"unknown algorithm {instruction.attrs_as(RngBitGeneratorAttrs).algorithm}"
        )
    parts = result_elements(instruction.shape)
    if not operand_array(instruction, 0).element_type.is_unsigned_integer:
        raise ShapeError(f"the state is unsigned, found {instruction.operand(0).shape}")
    bits_alone = isinstance(instruction.shape, ArrayShape)
    if not bits_alone and (
        len(parts) != 2 or not same_type(parts[0], instruction.operand(0).shape)
    ):
        raise ShapeError(
            f"expected (state, bits) with the state's shape {instruction.operand(0).shape}"
        )
    kind = as_array(parts[-1]).element_type
    if not kind.is_integer and not kind.is_floating:
        raise ShapeError(f"bits come as integers or floating-point numbers, found {parts[-1]}")


def one_transcendental_each(instruction: HloInstruction) -> OpCost:
    """Count a random number like a transcendental function, as XLA does."""
    elements = sum(as_array(leaf).num_elements for _, leaf in leaves(instruction.shape))
    return OpCost(transcendentals=float(elements))


define(Opcode.RNG, infer_free, 2, verify_rng, one_transcendental_each, side_effect=always)
define(Opcode.RNG_BIT_GENERATOR, infer_free, 1, verify_rng_bit_generator, one_transcendental_each)
define(Opcode.RNG_GET_AND_UPDATE_STATE, infer_rng_state, 0, side_effect=always)
