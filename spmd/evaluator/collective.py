"""Collectives: each member brings its operands to a rendezvous of its group and takes its part of the result.

Sums run over members in group order, in f32 for narrower floats, and every member gets the same bits. A start performs
the entire collective; its done unpacks the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

import numpy as np

from spmd.device import ReductionKind
from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.device import Device, Rendezvous, Steps
from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.pointwise import UFUNCS, apply_scalar
from spmd.evaluator.registry import evaluates_in_steps
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of, packed, tuple_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.reduction import reduction_kind
from spmd.shape import TupleShape, as_tuple

#: Operands of all members, in group order, to results of all members.
Exchange: TypeAlias = Callable[[HloInstruction, list[list[NDArray]]], Sequence[Value]]


def _meet(
    instruction: HloInstruction, operands: Operands, device: Device, exchange: Exchange
) -> Steps:
    members = device.session.group_of(instruction, device)

    def combine(payloads: Sequence[Value]) -> Sequence[Value]:
        return exchange(instruction, [arrays_of(tuple_of(p)) for p in payloads])

    return (yield Rendezvous(instruction, members, operands, combine))


def _dimension(instruction: HloInstruction) -> int:
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    if dimension is None:
        raise RunError(f"{instruction!r} names no dimension")
    return dimension


# ---- all-reduce
def _all_reduce(instruction: HloInstruction, members: list[list[NDArray]]) -> Sequence[Value]:
    total = _reduced(instruction, members)
    return [packed(total, instruction.shape)] * len(members)


def _reduced(instruction: HloInstruction, members: list[list[NDArray]]) -> list[NDArray]:
    kind = reduction_kind(instruction.to_apply)
    return [_reduce_one(instruction, kind, parts) for parts in zip(*members, strict=True)]


def _reduce_one(
    instruction: HloInstruction, kind: ReductionKind | None, parts: Sequence[NDArray]
) -> NDArray:
    total = parts[0]
    if kind is None:
        for part in parts[1:]:
            (total,) = apply_scalar(instruction.to_apply, [total, part])
        return total
    wide = widen(total)
    for part in parts[1:]:
        wide = np.asarray(UFUNCS[kind](wide, widen(part)))
    return narrow(wide, total.dtype)


# ---- reduce-scatter
def _reduce_scatter(instruction: HloInstruction, members: list[list[NDArray]]) -> Sequence[Value]:
    dimension = _dimension(instruction)
    totals = _reduced(instruction, members)
    parts = [np.split(total, len(members), axis=dimension) for total in totals]
    return [packed(list(mine), instruction.shape) for mine in zip(*parts, strict=True)]


# ---- all-gather
def _gathered(instruction: HloInstruction, members: list[list[NDArray]]) -> list[NDArray]:
    dimension = _dimension(instruction)
    return [np.concatenate(parts, axis=dimension) for parts in zip(*members, strict=True)]


def _all_gather(instruction: HloInstruction, members: list[list[NDArray]]) -> Sequence[Value]:
    return [packed(_gathered(instruction, members), instruction.shape)] * len(members)


def _all_gather_start(instruction: HloInstruction, members: list[list[NDArray]]) -> Sequence[Value]:
    """Return (operand, result) per member, each a tuple if there are several operands."""
    result = _one_or_tuple(_gathered(instruction, members))
    return [(_one_or_tuple(mine), result) for mine in members]


def _one_or_tuple(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else tuple(values)


# ---- all-to-all
def _all_to_all(instruction: HloInstruction, members: list[list[NDArray]]) -> Sequence[Value]:
    """Exchange. Array form: part i of the split dimension goes to member i. Tuple form: operand i goes to member i."""
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    if isinstance(instruction.shape, TupleShape) and dimension is None:
        return [tuple(sent[i] for sent in members) for i in range(len(members))]
    split = _dimension(instruction)
    parts = [[np.split(x, len(members), axis=split) for x in sent] for sent in members]
    received = [
        [np.concatenate([sent[k][i] for sent in parts], axis=split) for k in range(len(members[0]))]
        for i in range(len(members))
    ]
    return [packed(mine, instruction.shape) for mine in received]


# ---- ragged-all-to-all
def _ragged_all_to_all(
    instruction: HloInstruction, members: list[list[NDArray]]
) -> Sequence[Value]:
    """Exchange rows. operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes.

    Member s sends rows [input_offsets[t], + send_sizes[t]) to member t, which writes them at s's output_offsets[t].
    """
    results = [np.array(mine[1]) for mine in members]
    for rows, _, starts, sizes, offsets, _ in members:
        per_member = len(starts) // len(members)
        for k in range(len(starts)):
            start, size, offset = int(starts[k]), int(sizes[k]), int(offsets[k])
            results[k // per_member][offset : offset + size] = rows[start : start + size]
    return results


_EXCHANGES: dict[Opcode, Exchange] = {
    Opcode.ALL_REDUCE: _all_reduce,
    Opcode.ALL_REDUCE_START: _all_reduce,
    Opcode.REDUCE_SCATTER: _reduce_scatter,
    Opcode.ALL_GATHER: _all_gather,
    Opcode.ALL_GATHER_START: _all_gather_start,
    Opcode.ALL_TO_ALL: _all_to_all,
    Opcode.RAGGED_ALL_TO_ALL: _ragged_all_to_all,
}


@evaluates_in_steps(*_EXCHANGES)
def evaluate_exchange(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    return (yield from _meet(instruction, operands, device, _EXCHANGES[instruction.opcode]))


# ---- collective-broadcast
def _collective_broadcast(
    instruction: HloInstruction, members: list[list[NDArray]]
) -> Sequence[Value]:
    return [packed(members[0], instruction.shape)] * len(members)


@evaluates_in_steps(Opcode.COLLECTIVE_BROADCAST)
def evaluate_collective_broadcast(
    instruction: HloInstruction, operands: Operands, device: Device
) -> Steps:
    """Broadcast in the group; a device in no group gets zeros."""
    if device.session.find_group(instruction, device) is None:
        return _zeros(instruction, operands)
    return (yield from _meet(instruction, operands, device, _collective_broadcast))


def _zeros(instruction: HloInstruction, operands: Operands) -> Value:
    return packed([np.zeros_like(x) for x in arrays_of(operands)], instruction.shape)


# ---- collective-permute
def _permuted(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Return the operands of the source as a tuple of arrays; zeros if there is no source."""
    nothing: Operands = tuple(np.zeros_like(array_of(x)) for x in operands)
    received = yield from _sent_to(instruction, operands, device)
    return nothing if received is None else received


def _sent_to(
    instruction: HloInstruction, operands: Operands, device: Device
) -> Generator[Rendezvous, Value, Value | None]:
    """Return the value that the source of ``device`` sends; None if it has no source."""
    linked = device.session.linked_devices(instruction, device)
    if linked is None:
        return None
    members, source_of = linked

    def combine(payloads: Sequence[Value]) -> Sequence[Value]:
        sent = dict(zip(members, payloads, strict=True))
        return [sent[source_of[m]] if m in source_of else () for m in members]

    received = yield Rendezvous(instruction, members, operands, combine)
    return received if device.id in source_of else None


def _permuted_in_place(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Permute in place. operands: input, buffer, offsets in the input, offsets in the buffer; one per entry of
    ``slice_sizes``.

    The slices that the source takes from its input are written into the target's buffer; the rest of it is unchanged.
    """
    source, target, taken_at, written_at = operands
    if isinstance(source, tuple) or isinstance(target, tuple):
        raise UnsupportedError(
            f"{instruction!r}: the in-place collective-permute of tuples is not evaluated"
        )
    sizes = instruction.attrs_as(CollectivePermuteAttrs).slice_sizes
    x, buffer = array_of(source), np.array(array_of(target))
    taken = tuple(x[block] for block in _blocks(taken_at, sizes, x.shape))
    received = yield from _sent_to(instruction, taken, device)
    if received is not None:
        blocks = _blocks(written_at, sizes, buffer.shape)
        for block, part in zip(blocks, tuple_of(received), strict=True):
            buffer[block] = array_of(part)
    return buffer


def _blocks(
    starts: Value, sizes: Sequence[tuple[int, ...]], dims: tuple[int, ...]
) -> list[tuple[slice, ...]]:
    """Return one block per slice, clamped inside. Starts are a tuple of scalars, or a tuple of those for several
    slices.
    """
    given = tuple_of(starts)
    rows = given if given and isinstance(given[0], tuple) else (given,)
    return [
        tuple(
            slice(begin, begin + size)
            for begin, size in (
                (min(max(int(array_of(at)), 0), n - size), size)
                for at, size, n in zip(tuple_of(row), wanted, dims, strict=True)
            )
        )
        for row, wanted in zip(rows, sizes, strict=True)
    ]


def _in_place(instruction: HloInstruction) -> bool:
    return bool(instruction.attrs_as(CollectivePermuteAttrs).slice_sizes)


@evaluates_in_steps(Opcode.COLLECTIVE_PERMUTE)
def evaluate_collective_permute(
    instruction: HloInstruction, operands: Operands, device: Device
) -> Steps:
    if _in_place(instruction):
        return (yield from _permuted_in_place(instruction, operands, device))
    received = yield from _permuted(instruction, operands, device)
    return packed(tuple_of(received), instruction.shape)


@evaluates_in_steps(Opcode.COLLECTIVE_PERMUTE_START)
def evaluate_collective_permute_start(
    instruction: HloInstruction, operands: Operands, device: Device
) -> Steps:
    """Return (operand, result, contexts..); in place ((input, buffer, offsets..), result, contexts..)."""
    shape = as_tuple(instruction.shape)
    contexts = [np.zeros((), np.uint32)] * (len(shape.elements) - 2)
    if _in_place(instruction):
        buffer = yield from _permuted_in_place(instruction, operands, device)
        aliased = operands if isinstance(shape.elements[0], TupleShape) else operands[0]
        return (aliased, buffer, *contexts)
    received = yield from _permuted(instruction, operands, device)
    return (_one_or_tuple(operands), _one_or_tuple(tuple_of(received)), *contexts)
