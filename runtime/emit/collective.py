"""Collectives: a plan over lists of devices, then a start, and for a blocking collective its done right behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from collectives.communicator.kinds import permute_group
from runtime.lowering import (
    LOWERINGS,
    Device,
    Lowering,
    StepArrays,
    Views,
    no_part,
    nothing_in_place,
)
from runtime.program.thunks.collective import CollectiveDoneThunk, CollectiveStartThunk
from runtime.program.thunks.collective_plans import (
    AllGatherPlan,
    AllReducePlan,
    AllToAllPlan,
    CollectiveBroadcastPlan,
    CollectivePermutePlan,
    CollectivePlan,
    RaggedAllToAllPlan,
    ReduceScatterPlan,
)
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import Thunk
from spmd.device import ReductionKind
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import device_groups, device_pairs
from spmd.ops.reduction import reduction_kind
from spmd.registry import Registry

Groups: TypeAlias = tuple[tuple[int, ...], ...]
MakePlan: TypeAlias = Callable[[HloInstruction, Device], CollectivePlan]

PLANS: Registry[Opcode, MakePlan] = Registry("collective plan")


def plan_of(instruction: HloInstruction, device: Device) -> CollectivePlan:
    """The plan of a collective, of its start, or of an async-start around it."""
    if instruction.opcode is Opcode.ASYNC_START:
        instruction = instruction.to_apply.root
    make = PLANS.get(instruction.opcode)
    if make is None:
        raise UnsupportedError(f"{instruction!r}: the runtime does not start {instruction.opcode}")
    return make(instruction, device)


def _groups(instruction: HloInstruction, device: Device) -> Groups:
    return device_groups(instruction, device.num_partitions, device.replica_count)


def _reduction(instruction: HloInstruction) -> ReductionKind:
    reduction = reduction_kind(instruction.to_apply)
    if reduction is None:
        raise UnsupportedError(
            f"{instruction!r}: the reducer is no plain sum, product, min, max, and, or, xor"
        )
    return reduction


def _dimension(instruction: HloInstruction) -> int:
    return instruction.attrs_as(CollectiveAttrs).dimension or 0


@PLANS.register(Opcode.ALL_REDUCE, Opcode.ALL_REDUCE_START)
def all_reduce(instruction: HloInstruction, device: Device) -> CollectivePlan:
    return AllReducePlan(_groups(instruction, device), _reduction(instruction))


@PLANS.register(Opcode.ALL_GATHER, Opcode.ALL_GATHER_START)
def all_gather(instruction: HloInstruction, device: Device) -> CollectivePlan:
    return AllGatherPlan(_groups(instruction, device), _dimension(instruction))


@PLANS.register(Opcode.REDUCE_SCATTER)
def reduce_scatter(instruction: HloInstruction, device: Device) -> CollectivePlan:
    return ReduceScatterPlan(
        _groups(instruction, device), _reduction(instruction), _dimension(instruction)
    )


@PLANS.register(Opcode.ALL_TO_ALL)
def all_to_all(instruction: HloInstruction, device: Device) -> CollectivePlan:
    attrs = instruction.attrs_as(CollectiveAttrs)
    return AllToAllPlan(_groups(instruction, device), attrs.dimension)


@PLANS.register(Opcode.COLLECTIVE_BROADCAST)
def collective_broadcast(instruction: HloInstruction, device: Device) -> CollectivePlan:
    return CollectiveBroadcastPlan(_groups(instruction, device))


@PLANS.register(Opcode.RAGGED_ALL_TO_ALL)
def ragged_all_to_all(instruction: HloInstruction, device: Device) -> CollectivePlan:
    return RaggedAllToAllPlan(_groups(instruction, device))


@PLANS.register(Opcode.COLLECTIVE_PERMUTE, Opcode.COLLECTIVE_PERMUTE_START)
def collective_permute(instruction: HloInstruction, device: Device) -> CollectivePlan:
    if instruction.attrs_as(CollectivePermuteAttrs).slice_sizes:
        raise UnsupportedError(
            f"{instruction!r}: the runtime does not run collective-permute in place"
        )
    pairs = device_pairs(instruction, device.num_partitions, device.replica_count)
    return CollectivePermutePlan((permute_group(pairs),), pairs)


def dense_operands(_: HloInstruction, views: Views) -> dict[int, tuple[int, ...]]:
    """Communicators take row-major arrays without gaps."""
    return {i: tuple(range(len(v.dims))) for i, v in enumerate(views) if not v.is_packed}


def each_in_place(instruction: HloInstruction) -> tuple[tuple[int, int], ...]:
    return tuple((i, i) for i in range(instruction.num_operands))


def alike(instruction: HloInstruction, device: Device) -> Groups:
    """Return the groups of devices whose results are equal, so that members may share their memory.

    Left out are reductions of complex numbers that are no sums: these go by messages, through memory of each member.
    """
    plan = plan_of(instruction, device)
    if isinstance(plan, AllReducePlan):
        operands = (operand.array_shape for operand in instruction.operands)
        if plan.reduction is not ReductionKind.SUM and any(
            operand.element_type.is_complex for operand in operands
        ):
            return ()
        return plan.groups
    return plan.groups if isinstance(plan, (AllGatherPlan, CollectiveBroadcastPlan)) else ()


def own_part(instruction: HloInstruction, device: Device) -> Groups:
    """Return the groups of an all-gather that concatenates whole operands, or of a reduce-scatter that divides so; else
    none."""
    dimension = _dimension(instruction)
    if any(math.prod(operand.dims[:dimension]) != 1 for operand in instruction.operands):
        return ()
    return plan_of(instruction, device).groups


def emit_start(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    plan = plan_of(instruction, device)
    return CollectiveStartThunk(instruction.name, plan, arrays.operands, arrays.results)


def emit_blocking(instruction: HloInstruction, arrays: StepArrays, device: Device) -> Thunk:
    return blocking(instruction.name, plan_of(instruction, device), arrays)


def blocking(name: str, plan: CollectivePlan, arrays: StepArrays) -> Thunk:
    """A start and its done right behind."""
    start = CollectiveStartThunk(name, plan, arrays.operands, arrays.results)
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
#: Lowered in a file of its own.
_ELSEWHERE = (Opcode.ALL_TO_ALL,)

for _opcode in dict.fromkeys((*PLANS, *_STARTS)):
    if _opcode in _ELSEWHERE:
        continue
    LOWERINGS.add(
        _opcode,
        Lowering(
            emit_start if _opcode in _STARTS else emit_blocking,
            in_place=_IN_PLACE.get(_opcode, nothing_in_place),
            layouts=dense_operands,
            alike=alike,
            own_part=own_part if _opcode in _WITH_PARTS else no_part,
        ),
    )
