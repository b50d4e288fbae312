"""Each kind of collective in steps for NCCL. Elements move as bytes; only reductions know types.

NCCL joins and cuts whole pieces of memory. Along a dimension that is not the first one, what belongs to a member is a
*block*: as many rows as all dimensions before it have elements, each at a pitch. It is copied to or from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collectives.communicator import kinds
from collectives.communicator.kinds import Collective
from collectives.communicator.nccl.interface import DeviceArray
from collectives.communicator.nccl.steps import (
    AllGatherCall,
    AllReduceCall,
    BroadcastCall,
    CopyRows,
    DeviceSteps,
    NcclCall,
    ReceiveCall,
    ReduceScatterCall,
    SendCall,
    Zero,
)
from collectives.communicator.nccl.types import NcclReduction, nccl_reduction
from spmd.device import ReductionKind

SCRATCH_ALIGNMENT = 256


@dataclass(frozen=True)
class Block:
    """``rows`` rows of ``row_bytes`` bytes from ``pointer`` on, ``pitch`` bytes from one to the next."""

    pointer: int
    pitch: int
    row_bytes: int
    rows: int

    @staticmethod
    def whole(array: DeviceArray) -> Block:
        return Block(array.pointer, array.nbytes, array.nbytes, 1)

    @staticmethod
    def part(array: DeviceArray, index: int, count: int, dimension: int) -> Block:
        """The ``index``-th of ``count`` equal parts along ``dimension``."""
        rows = math.prod(array.shape[:dimension])
        pitch = array.nbytes // rows if rows else 0
        row_bytes = pitch // count
        return Block(array.pointer + index * row_bytes, pitch, row_bytes, rows)

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def is_dense(self) -> bool:
        return self.rows <= 1 or self.pitch == self.row_bytes

    def at(self, pointer: int) -> Block:
        """Return a block of the same rows at ``pointer``, without gaps."""
        return Block(pointer, self.row_bytes, self.row_bytes, self.rows)


@dataclass
class Plan:
    """Steps as they are put together. ``scratch``: where this communicator's begins; ``scratch_bytes``: taken of it."""

    index: int
    count: int
    scratch: int
    scratch_bytes: int = 0
    before: list[CopyRows | Zero] = field(default_factory=list)
    calls: list[NcclCall] = field(default_factory=list)
    after: list[CopyRows | Zero] = field(default_factory=list)

    def steps(self) -> DeviceSteps:
        return DeviceSteps(tuple(self.before), tuple(self.calls), tuple(self.after))

    def take(self, num_bytes: int) -> int:
        """Address of scratch that this collective has for itself."""
        start = self.scratch + self.scratch_bytes
        self.scratch_bytes += -(-num_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        return start

    def packed(self, block: Block, *, always: bool = False) -> int:
        """Return the address at which the block's bytes lie without gaps before NCCL is called; copies if necessary."""
        if block.is_dense and not always:
            return block.pointer
        dense = block.at(self.take(block.nbytes))
        self.before += copied(block, dense)
        return dense.pointer


@dataclass(frozen=True)
class Buffers:
    operands: tuple[DeviceArray, ...]
    results: tuple[DeviceArray, ...]

    @property
    def are_exchanged_in_place(self) -> bool:
        """Whether some result lies on some operand."""
        return any(map(self._is_written, self.operands))

    def is_lost(self, k: int, *, in_place: bool) -> bool:
        """Whether operand ``k`` is written before all is read; ``in_place``: its own result may lie where it does."""
        own = [] if in_place else [self.results[k]]
        others = [*self.results[:k], *self.results[k + 1 :], *own]
        return any(result.overlaps(self.operands[k]) for result in others)

    def _is_written(self, operand: DeviceArray) -> bool:
        return any(result.overlaps(operand) for result in self.results)


def copied(source: Block, target: Block) -> list[CopyRows]:
    """Nothing where there is nothing to copy. As many bytes each; unless one is dense, as many rows, too."""
    if source.nbytes == 0 or source == target:
        return []
    if source.is_dense and target.is_dense:
        rows, row_bytes = 1, source.nbytes
    elif source.is_dense:
        rows, row_bytes = target.rows, target.row_bytes
    else:
        assert target.is_dense or target.row_bytes == source.row_bytes
        rows, row_bytes = source.rows, source.row_bytes
    source_pitch = row_bytes if source.is_dense else source.pitch
    target_pitch = row_bytes if target.is_dense else target.pitch
    return [CopyRows(target.pointer, target_pitch, source.pointer, source_pitch, row_bytes, rows)]


def cannot(collective: Collective, dtypes: Sequence[np.dtype[Any]], version: int) -> str | None:
    """Why NCCL of ``version`` does not do this, the same on all ranks, whatever their groups; None where it does."""
    if isinstance(collective, kinds.RaggedAllToAll):
        return "its sizes lie in the data"
    if isinstance(collective, (kinds.AllReduce, kinds.ReduceScatter)):
        for dtype in dtypes:
            how = nccl_reduction(dtype, collective.reduction, version)
            if isinstance(how, str):
                return how
    return None


def plan_steps(
    collective: Collective,
    rank: int,
    operands: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
    version: int,
    scratch: int = 0,
) -> tuple[DeviceSteps, int]:
    """Steps of ``rank``, and the bytes of scratch, from ``scratch`` on, that they use. ``cannot`` says None of it."""
    group = collective.group
    plan = Plan(group.index(rank), len(group), scratch)
    buffers = Buffers(tuple(operands), tuple(results))
    if len(group) == 1:
        _alone(plan, collective, buffers)
    else:
        _PLANNERS[type(collective)](plan, collective, buffers, version)
    return plan.steps(), plan.scratch_bytes


def _alone(plan: Plan, collective: Collective, buffers: Buffers) -> None:
    """A group of one: its results are its operands, but for a permute to nobody."""
    if isinstance(collective, kinds.CollectivePermute):
        (rank,) = collective.group
        if collective.source_of(rank) != rank:
            plan.after += [Zero(one.pointer, one.nbytes) for one in buffers.results if one.size]
            return
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if operand.pointer != result.pointer and operand.nbytes:
            aside = buffers.is_lost(k, in_place=False)
            source = plan.packed(Block.whole(operand), always=aside)
            plan.after += copied(Block.whole(operand).at(source), Block.whole(result))


def _all_reduce(plan: Plan, collective: kinds.AllReduce, buffers: Buffers, version: int) -> None:
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if operand.size:
            how = _reduction(operand, collective.reduction, version)
            aside = buffers.is_lost(k, in_place=operand.pointer == result.pointer)
            sent = plan.packed(Block.whole(operand), always=aside)
            count = operand.size * how.parts
            plan.calls.append(AllReduceCall(sent, result.pointer, count, how.kind, how.operation))


def _all_gather(plan: Plan, collective: kinds.AllGather, buffers: Buffers, _: int) -> None:
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if not operand.size:
            continue
        places = _parts(result, plan.count, collective.dimension)
        own = places[plan.index]
        aside = buffers.is_lost(k, in_place=own.is_dense and operand.pointer == own.pointer)
        sent = plan.packed(Block.whole(operand), always=aside)
        if own.is_dense:
            plan.calls.append(AllGatherCall(sent, result.pointer, operand.nbytes))
            continue
        joined = plan.take(result.nbytes)
        plan.calls.append(AllGatherCall(sent, joined, operand.nbytes))
        for member, place in enumerate(places):
            plan.after += copied(place.at(joined + member * operand.nbytes), place)


def _reduce_scatter(
    plan: Plan, collective: kinds.ReduceScatter, buffers: Buffers, version: int
) -> None:
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if not operand.size:
            continue
        parts = _parts(operand, plan.count, collective.dimension)
        own = parts[plan.index]
        aside = buffers.is_lost(k, in_place=own.is_dense and result.pointer == own.pointer)
        if parts[0].is_dense and not aside:
            sent = operand.pointer
        else:
            sent = plan.take(operand.nbytes)
            for member, part in enumerate(parts):
                plan.before += copied(part, part.at(sent + member * result.nbytes))
        how = _reduction(operand, collective.reduction, version)
        count = result.size * how.parts
        plan.calls.append(ReduceScatterCall(sent, result.pointer, count, how.kind, how.operation))


def _all_to_all(plan: Plan, collective: kinds.AllToAll, buffers: Buffers, _: int) -> None:
    if collective.dimension is None:
        parts = [Block.whole(operand) for operand in buffers.operands]
        places = [Block.whole(result) for result in buffers.results]
        _exchange(plan, buffers, parts, places)
        return
    joined = collective.joined
    assert joined is not None
    for operand, result in zip(buffers.operands, buffers.results, strict=True):
        parts = _parts(operand, plan.count, collective.dimension)
        _exchange(plan, buffers, parts, _parts(result, plan.count, joined))


def _exchange(
    plan: Plan, buffers: Buffers, parts: Sequence[Block], places: Sequence[Block]
) -> None:
    """Part i goes to member i, place i is for what it sends. Memory that is read and written is copied aside first."""
    is_over = buffers.are_exchanged_in_place
    for member, (part, place) in enumerate(zip(parts, places, strict=True)):
        if part.nbytes == 0:
            continue
        if member == plan.index:
            fits = part.is_dense or place.is_dense or part.row_bytes == place.row_bytes
            aside = is_over or not fits
            source = part.at(plan.packed(part, always=True)) if aside else part
            plan.after += copied(source, place)
            continue
        plan.calls.append(SendCall(plan.packed(part, always=is_over), part.nbytes, member))
        inbox = place if place.is_dense else place.at(plan.take(place.nbytes))
        plan.calls.append(ReceiveCall(inbox.pointer, place.nbytes, member))
        plan.after += copied(inbox, place)


def _permute(plan: Plan, collective: kinds.CollectivePermute, buffers: Buffers, _: int) -> None:
    group = collective.group
    rank = group[plan.index]
    source, targets = collective.source_of(rank), collective.targets_of(rank)
    is_over = buffers.are_exchanged_in_place
    for operand, result in zip(buffers.operands, buffers.results, strict=True):
        if operand.nbytes == 0:
            continue
        whole = Block.whole(operand)
        stays = source == rank and operand.pointer == result.pointer
        sent = plan.packed(whole, always=is_over and bool(targets) and not stays)
        for target in targets:
            if target != rank:
                plan.calls.append(SendCall(sent, operand.nbytes, group.index(target)))
        if source is None:
            plan.after.append(Zero(result.pointer, result.nbytes))
        elif source == rank:
            plan.after += copied(whole.at(sent), Block.whole(result))
        else:
            plan.calls.append(ReceiveCall(result.pointer, result.nbytes, group.index(source)))


def _broadcast(plan: Plan, _: kinds.CollectiveBroadcast, buffers: Buffers, __: int) -> None:
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if operand.nbytes:
            aside = buffers.is_lost(k, in_place=operand.pointer == result.pointer)
            sent = plan.packed(Block.whole(operand), always=aside)
            plan.calls.append(BroadcastCall(sent, result.pointer, operand.nbytes))


def _parts(array: DeviceArray, count: int, dimension: int) -> list[Block]:
    return [Block.part(array, index, count, dimension) for index in range(count)]


def _reduction(operand: DeviceArray, reduction: ReductionKind, version: int) -> NcclReduction:
    how = nccl_reduction(operand.dtype, reduction, version)
    assert isinstance(how, NcclReduction), "`cannot` has been asked"
    return how


_PLANNERS: dict[type[Collective], Callable[..., None]] = {
    kinds.AllReduce: _all_reduce,
    kinds.AllGather: _all_gather,
    kinds.ReduceScatter: _reduce_scatter,
    kinds.AllToAll: _all_to_all,
    kinds.CollectivePermute: _permute,
    kinds.CollectiveBroadcast: _broadcast,
}
