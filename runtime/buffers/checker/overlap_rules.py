"""Buffer checker rule for overlaps of an operation: a result may overlap an operand only if their elements coincide."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.checker.block_overlap import is_written_block, overlaps_but_for_a_block
from runtime.buffers.checker.element_order import Location, is_read
from runtime.buffers.checker.row_overlap import overlaps_by_rows
from runtime.buffers.types import ArrayView, BufferSlice
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape

#: Non-elementwise operations that may overwrite operands: result i may overwrite operand i. A triangular solve may
#: overwrite its right-hand side (below).
_IN_PLACE = frozenset(
    {
        Opcode.ALL_REDUCE,
        Opcode.ALL_TO_ALL,
        Opcode.CHOLESKY,
        Opcode.COLLECTIVE_PERMUTE,
        Opcode.DYNAMIC_UPDATE_SLICE,
        Opcode.FFT,
        Opcode.SCATTER,
    }
)

#: Largest number of locations that the elements of one operand may have in one value. If there are more, the elements
#: count as moved.
_MOST_LOCATIONS = 32


def wrong_overlap(
    instruction: HloInstruction,
    reads: Sequence[ArrayView],
    scratch: Sequence[BufferSlice],
    results: Sequence[BufferSlice],
    op: CollectiveOp | None = None,
) -> str:
    """Return a description of the first illegal overlap among operands, scratch and results, or an empty string.

    reads, scratch, results: memory of the operand leaves, the scratch and the result leaves of ``instruction``. op: the
    collective, if the instruction is one.
    """
    elementwise = OPS[instruction.opcode].elementwise
    in_place = instruction.opcode in _IN_PLACE
    steady = _steady_operands(instruction)
    pairs = _pairs(instruction) if instruction.opcode is Opcode.FUSION else ()
    for i, slice_ in enumerate(results):
        if any(slice_.overlaps(other) for other in results[i + 1 :]):
            return f"writes two results to {slice_}"
        for k, read in enumerate(reads):
            same_elements = slice_ == read.slice and read.view.is_dense
            may_share = elementwise or (in_place and i == k) or k in steady or (i, k) in pairs
            may_share |= k == 1 and instruction.opcode is Opcode.TRIANGULAR_SOLVE
            if i == k and _is_own_part(op, read, slice_):
                continue
            if slice_.overlaps(read.slice) and not (may_share and same_elements):
                return f"writes its result to {slice_} while it reads {read.slice}"
    read_slices = [read.slice for read in reads]
    for i, slice_ in enumerate(scratch):
        if any(slice_.overlaps(other) for other in (*read_slices, *results, *scratch[i + 1 :])):
            return f"has scratch at {slice_}, which it uses otherwise"
    return ""


def _is_own_part(op: CollectiveOp | None, read: ArrayView, result: BufferSlice) -> bool:
    """Return whether the operand is this device's own part of the result, or the result is that of the operand.

    In an all-gather no other device writes to this part of the result; in a reduce-scatter no other device reads this
    part of the operand.
    """
    own = None if op is None else op.collective.own_tile(read.slice, result)
    if op is None or own is None:
        return False
    tile, full, dimension = own
    one_run = read.view.is_dense and math.prod(read.view.dims[:dimension]) == 1
    fits = (tile.allocation, tile.offset, tile.span) == (full.allocation, full.offset, full.size)
    return one_run and fits and tile.parts == op.groups and not full.parts


def _pairs(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return the pairs (result, operand) that may overlap: the fusion processes rows, writes blocks or scatters."""
    return overlaps_by_rows(fusion) | overlaps_but_for_a_block(fusion) | _scattered(fusion)


def _scattered(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return the pair (0, operand) of a fusion whose result is a scatter to an operand that nothing else reads."""
    root, parameters = fusion.to_apply.root, fusion.to_apply.parameters
    if root.opcode is not Opcode.SCATTER:
        return frozenset()
    array = root.operand(0)
    is_alone = array.num_users == 1 and root.operands.count(array) == 1
    return frozenset({(0, parameters.index(array))} if is_alone and array in parameters else ())


def _steady_operands(instruction: HloInstruction) -> frozenset[int]:
    """Return the operands of a fusion of which element n of any result needs only element n."""
    if instruction.opcode is not Opcode.FUSION:
        return frozenset()
    fused = instruction.to_apply
    needed = {fused.root}
    for inner in reversed(fused.instructions):
        if any(user in needed and is_read(inner, user) for user in inner.users):
            needed.add(inner)
    return frozenset(
        i for i, parameter in enumerate(fused.parameters) if _is_steady(parameter, fused, needed)
    )


def _is_steady(
    parameter: HloInstruction, fused: HloComputation, needed: set[HloInstruction]
) -> bool:
    """Return whether element n of any root of ``fused`` needs no element of ``parameter`` but element n.

    Elements may be moved in between. needed: instructions on which the root depends.
    """
    if not isinstance(parameter.shape, ArrayShape):
        return False
    roots = fused.root.elements
    if parameter.shape.num_elements == 1 and all(x.array_shape.num_elements == 1 for x in roots):
        return True
    locations = {parameter: {Location.of(parameter.dims)}}
    for inner in fused.instructions:
        found = locations.get(inner)
        if not found or inner not in needed:
            continue
        is_root, is_block = inner in roots, False
        for user in inner.users:
            if user not in needed or not is_read(inner, user):
                continue
            if user.opcode is Opcode.TUPLE:
                continue
            if is_written_block(inner, user, fused):
                is_block = True
                continue
            for location in found:
                after = location.after(inner, user)
                if after is None:
                    return False
                locations.setdefault(user, set()).update(after)
            if len(locations[user]) > _MOST_LOCATIONS:
                return False
        # Elements of a root of another size are at other addresses, even if their numbers are equal.
        if is_root and inner.array_shape.num_elements != parameter.shape.num_elements:
            return False
        if (is_root or is_block) and not all(location.order.is_own for location in found):
            return False
    return True
