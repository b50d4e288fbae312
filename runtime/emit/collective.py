"""Lowering of collectives: a start thunk, which for a synchronous collective is directly followed by its done."""

from __future__ import annotations

import math

from collectives.communicator.kinds.all_kinds import KIND_NAMED
from collectives.communicator.kinds.collective_permute import CollectivePermute, permute_group
from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.types import Groups
from runtime.lowering import (
    LOWERINGS,
    Device,
    Lowering,
    OpArrays,
    Views,
    no_groups,
    nothing_in_place,
)
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    Thunk,
    ThunkSequence,
)
from spmd.device import ReductionKind
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import device_groups, device_pairs
from spmd.ops.reduction import reduction_kind


def collective_op(instruction: HloInstruction, device: Device) -> CollectiveOp:
    """Return the collective operation of ``instruction`` with the groups of all devices.

    ``instruction`` is a synchronous collective, the start of an asynchronous one, or an async-start whose computation
    is a collective. Raises UnsupportedError if the runtime cannot run it.
    """
    if instruction.opcode is Opcode.ASYNC_START:
        instruction = instruction.to_apply.root
    if isinstance(instruction.attrs, CollectivePermuteAttrs):
        return _permute(instruction, instruction.attrs, device)
    if instruction.opcode not in KIND:
        raise UnsupportedError(f"{instruction!r}: the runtime does not start {instruction.opcode}")
    groups = device_groups(instruction, device.num_partitions, device.replica_count)
    reduction = _reduction(instruction) if instruction.called_computations else None
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    kind = KIND_NAMED[KIND[instruction.opcode]]
    return CollectiveOp(groups, kind.of_attributes(dimension, reduction))


def _permute(
    instruction: HloInstruction, attrs: CollectivePermuteAttrs, device: Device
) -> CollectiveOp:
    """Return the operation of a collective-permute. Raises UnsupportedError if it runs in place on slices."""
    if attrs.slice_sizes:
        raise UnsupportedError(
            f"{instruction!r}: the runtime does not run collective-permute in place"
        )
    pairs = device_pairs(instruction, device.num_partitions, device.replica_count)
    group = permute_group(pairs)
    return CollectiveOp((group,), CollectivePermute(group, pairs))


def _reduction(instruction: HloInstruction) -> ReductionKind:
    """Return the reduction of a collective. Raises UnsupportedError if its reducer is no plain reduction."""
    reduction = reduction_kind(instruction.to_apply)
    if reduction is None:
        raise UnsupportedError(
            f"{instruction!r}: the reducer is not a plain sum, product, min, max, and, or, xor"
        )
    return reduction


def dense_operands(_: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Return the operands that must be copied to row-major order, since communicators require packed arrays."""
    return {i: tuple(range(len(v.dims))) for i, v in enumerate(views) if not v.is_packed}


def each_in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    """Return pairs (i, i): each result may be the memory of its operand."""
    return tuple((i, i) for i in range(instruction.num_operands))


def equal_results(instruction: HloInstruction, device: Device) -> Groups:
    """Return the groups of devices whose members get equal results and may share their memory, or no groups."""
    op = collective_op(instruction, device)
    types = [operand.array_shape.element_type for operand in instruction.operands]
    return op.groups if op.collective.may_share_results(types) else ()


def own_part(instruction: HloInstruction, device: Device) -> Groups:
    """Return the groups of an all-gather or reduce-scatter in which the part of each member is contiguous.

    The smaller array of a device may then be a slice of the larger one. Returns no groups if the parts are not
    contiguous.
    """
    dimension = instruction.attrs_as(CollectiveAttrs).dimension or 0
    if any(math.prod(operand.dims[:dimension]) != 1 for operand in instruction.operands):
        return ()
    return collective_op(instruction, device).groups


def emit_start(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the start of an asynchronous collective. Its done is emitted by emit/program.py."""
    op = collective_op(instruction, device)
    return CollectiveStartThunk(instruction.name, op, arrays.operands, arrays.results)


def emit_blocking(instruction: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the start and the done of a synchronous collective."""
    return blocking(instruction.name, collective_op(instruction, device), arrays)


def blocking(name: str, op: CollectiveOp, arrays: OpArrays) -> Thunk:
    """Return the thunk sequence of a synchronous collective: a start that is directly followed by its done."""
    start = CollectiveStartThunk(name, op, arrays.operands, arrays.results)
    done = CollectiveDoneThunk(name, name, arrays.operands, arrays.results)
    return ThunkSequence(name, (start, done))


_STARTS = (
    Opcode.ALL_REDUCE_START,
    Opcode.ALL_GATHER_START,
    Opcode.COLLECTIVE_PERMUTE_START,
    Opcode.ASYNC_START,
)
_IN_PLACE = {Opcode.ALL_REDUCE: each_in_place, Opcode.COLLECTIVE_PERMUTE: each_in_place}
_WITH_PARTS = (Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER)
#: Opcodes that another file lowers.
_ELSEWHERE = (Opcode.ALL_TO_ALL,)

for _opcode in dict.fromkeys((*KIND, *_STARTS)):
    if _opcode in _ELSEWHERE:
        continue
    LOWERINGS.add(
        _opcode,
        Lowering(
            emit_start if _opcode in _STARTS else emit_blocking,
            in_place=_IN_PLACE.get(_opcode, nothing_in_place),
            layouts=dense_operands,
            equal_results=equal_results,
            own_part=own_part if _opcode in _WITH_PARTS else no_groups,
        ),
    )
