"""Lowering of rng-bit-generator to a kernel, or to the reference evaluator."""

from __future__ import annotations

from runtime.emit.reference import emit_with
from runtime.lowering import LOWERINGS, Lowering
from runtime.program.records.random_bits import Algorithm, RandomBitsKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import RngBitGeneratorAttrs
from spmd.ops.checks import result_elements
from spmd.shape import PrimitiveType, as_array


def random_bits_kernel(instruction: HloInstruction) -> RandomBitsKernel | None:
    """Return the kernel of an rng-bit-generator, or None if the reference evaluator must compute it.

    The kernel requires a state u64[2], or u64[3] for Philox, and an integer type of the result. rng_default is Philox,
    as in XLA's CPU back end.
    """
    state = instruction.operand(0).array_shape
    kind = as_array(result_elements(instruction.shape)[-1]).element_type
    named = instruction.attrs_as(RngBitGeneratorAttrs).algorithm
    algorithm = Algorithm.THREEFRY if named == "rng_three_fry" else Algorithm.PHILOX
    sizes = (2,) if algorithm is Algorithm.THREEFRY else (2, 3)
    if state.element_type is not PrimitiveType.U64 or state.rank != 1 or state.dims[0] not in sizes:
        return None
    return RandomBitsKernel(algorithm, kind) if kind.is_integer else None


LOWERINGS.add(Opcode.RNG_BIT_GENERATOR, Lowering(emit_with(random_bits_kernel)))
