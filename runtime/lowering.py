"""Lowering: one record per opcode with what buffer assignment and thunk emission need to know.

The records are defined in ``runtime/emit/<family>.py``; ``runtime/emit/__init__.py`` imports them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from collectives.communicator.group import Group
from runtime.buffers.types import ArrayView
from runtime.program.strides import StridedView
from runtime.program.thunks import Thunk
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry
from spmd.shape import ArrayShape

Views: TypeAlias = tuple[StridedView, ...]

#: Dimensions in their order in memory, the slowest first.
Order: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpArrays:
    """Arrays of one op: array leaves of all operands, array leaves of the result, scratch."""

    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    scratch: tuple[ArrayView, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """Device counts of the program, from which replica groups become lists of devices."""

    num_partitions: int
    replica_count: int


Emit: TypeAlias = Callable[[HloInstruction, OpArrays, Device], Thunk]


def nothing_in_place(_: HloInstruction) -> tuple[tuple[int, int], ...]:
    return ()


def any_layout(_: HloInstruction, __: Views) -> dict[int, Order]:
    return {}


def row_major_alone(_: HloInstruction, __: Order) -> bool:
    return False


def no_scratch(_: HloInstruction, __: Views) -> tuple[ArrayShape, ...]:
    return ()


def no_groups(_: HloInstruction, __: Device) -> tuple[Group, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Lowering:
    """Rules by which one opcode is lowered.

    emit: makes the thunk.
    in_place: pairs (result leaf, operand leaf); the result may reuse the memory of an operand that dies here.
    layouts: operands that must be contiguous, as {operand leaf: dimensions, slowest first}; they are copied first.
        It is called with the operands' current views. An empty answer means that they need no copies.
    writes: whether the result, an array, can be written in that order of dimensions instead of row major.
    scratch: arrays that the thunk needs while it runs; they count as temporary memory.
    equal_results: groups of devices whose members get the same results, and write them only after all of a group have
        started; every device is in one group. Empty if results may differ.
    own_part: groups of devices. Cut the larger of operand n and result n into as many equal parts as the group has
        members, in the group's order: the smaller one may lie in this device's part. Empty if it may not.
    """

    emit: Emit
    in_place: Callable[[HloInstruction], tuple[tuple[int, int], ...]] = nothing_in_place
    layouts: Callable[[HloInstruction, Views], dict[int, Order]] = any_layout
    writes: Callable[[HloInstruction, Order], bool] = row_major_alone
    scratch: Callable[[HloInstruction, Views], tuple[ArrayShape, ...]] = no_scratch
    equal_results: Callable[[HloInstruction, Device], tuple[Group, ...]] = no_groups
    own_part: Callable[[HloInstruction, Device], tuple[Group, ...]] = no_groups


LOWERINGS: Registry[Opcode, Lowering] = Registry("lowering")


def result_order(instruction: HloInstruction) -> Order:
    """Return the dimension order in which an array is written: its layout's if the op supports it, else row major."""
    shape = instruction.array_shape
    row_major = tuple(range(shape.rank))
    if shape.layout is None:
        return row_major
    order = shape.layout.minor_to_major[::-1]
    lowering = LOWERINGS.get(instruction.opcode)
    if order == row_major or lowering is None or not lowering.writes(instruction, order):
        return row_major
    return order
