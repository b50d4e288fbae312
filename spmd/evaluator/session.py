"""Evaluation session of one module: the cached evaluation orders and the mesh of its manual regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from spmd.analysis.side_effects import SideEffects
from spmd.errors import RunError
from spmd.evaluator.device import Device
from spmd.evaluator.manual_mesh import ManualDevices
from spmd.evaluator.op_tables import REGISTERED, FindPlain, OpTables
from spmd.evaluator.registry import Evaluate
from spmd.evaluator.value import Value
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.host_feed import HostFeed, UnpartitionedFeed
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.groups import device_groups, device_pairs
from spmd.shape import ArrayShape

#: Opcodes that expand constants before their use, and the largest element count of a cached value.
_OF_CONSTANTS = frozenset(
    {Opcode.CONSTANT, Opcode.IOTA, Opcode.BROADCAST, Opcode.RESHAPE, Opcode.CONVERT}
)
_SMALL = 4096

_NO_FEED = UnpartitionedFeed(None, None)


@dataclass(frozen=True, slots=True)
class OrderedOp:
    """One operation of an order. ``operands``, ``result`` and ``dead_after``, the values without later readers, are
    indices of the frame's values.

    ``evaluate``: the registered function if operands alone determine the value. ``parameter``: its number, or -1.
    """

    instruction: HloInstruction
    evaluate: Evaluate | None
    parameter: int
    operands: tuple[int, ...]
    result: int
    dead_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EvaluationOrder:
    """Evaluation order of a computation: needed instructions, operands first, with the point where each value dies.

    ``frame``: the values before the first op. Small values that depend only on constants are in it and have no op,
    so a loop does not recompute them in every trip.
    """

    ops: tuple[OrderedOp, ...]
    frame: tuple[Value, ...]
    root: int


class Session:
    """Caches that live as long as one call of ``evaluate``; the module must not change during it."""

    def __init__(
        self,
        module: HloModule | None,
        tables: OpTables = REGISTERED,
        feed: HostFeed = _NO_FEED,
    ) -> None:
        self.module = module
        self.tables = tables
        self.feed = feed
        self._effects = SideEffects()
        self._orders: dict[HloComputation, EvaluationOrder] = {}
        self._groups: dict[HloInstruction, dict[int, tuple[int, ...]]] = {}
        #: Messages sent and not yet received, oldest first, by (channel, source, target).
        self.messages: dict[tuple[int, int, int], list[Value]] = {}

    def order(self, computation: HloComputation) -> EvaluationOrder:
        order = self._orders.get(computation)
        if order is None:
            order = self._orders[computation] = evaluation_order(
                computation, self.tables.plain, self._effects
            )
        return order

    def find_group(self, instruction: HloInstruction, device: Device) -> tuple[int, ...] | None:
        """Return the group of ``device``, in member order; None if no group has it."""
        return self._groups_of(instruction, device).get(device.id)

    def group_of(self, instruction: HloInstruction, device: Device) -> tuple[int, ...]:
        """Return the group of ``device``. Raises RunError if no group has it."""
        group = self.find_group(instruction, device)
        if group is None:
            raise RunError(f"{instruction!r}: device {device.id} is in no replica group")
        return group

    def _groups_of(self, instruction: HloInstruction, device: Device) -> dict[int, tuple[int, ...]]:
        groups = self._groups.get(instruction)
        if groups is None:
            every = device_groups(instruction, device.num_partitions, device.num_replicas)
            groups = self._groups[instruction] = {m: group for group in every for m in group}
        return groups

    def linked_devices(
        self, instruction: HloInstruction, device: Device
    ) -> tuple[tuple[int, ...], dict[int, int]] | None:
        """Return the devices that a permute's pairs link with ``device`` (directly or indirectly), and each target's
        source.

        Returns None if no pair has the device.
        """
        pairs = device_pairs(instruction, device.num_partitions, device.num_replicas)
        linked = {device.id}
        grown = True
        while grown:
            more = {d for pair in pairs if linked.intersection(pair) for d in pair} - linked
            linked |= more
            grown = bool(more)
        if len(linked) == 1 and (device.id, device.id) not in pairs:
            return None
        return tuple(sorted(linked)), {t: s for s, t in pairs if t in linked}

    @cached_property
    def manual(self) -> ManualDevices:
        return ManualDevices.of(self.module)


def evaluation_order(
    computation: HloComputation, find: FindPlain, effects: SideEffects
) -> EvaluationOrder:
    needed = _needed(computation, effects)
    order = [i for i in computation.post_order() if i in needed]
    index = {instruction: n for n, instruction in enumerate(order)}
    last_use: dict[int, int] = {}
    for n, instruction in enumerate(order):
        last_use[n] = n
        for operand in instruction.operands:
            last_use[index[operand]] = n
    root = index[computation.root]
    last_use[root] = len(order)
    frame = _constants(order, index, find)
    fixed = {n for n, value in enumerate(frame) if value is not None}
    dying: dict[int, list[int]] = {}
    for value, number in last_use.items():
        if value not in fixed:
            dying.setdefault(number, []).append(value)
    ops = tuple(
        OrderedOp(
            i,
            find(i.opcode),
            i.attrs.number if isinstance(i.attrs, ParameterAttrs) else -1,
            tuple(index[o] for o in i.operands),
            n,
            tuple(dying.get(n, ())),
        )
        for n, i in enumerate(order)
        if n not in fixed
    )
    return EvaluationOrder(ops, tuple(() if value is None else value for value in frame), root)


def _constants(
    order: Sequence[HloInstruction], index: dict[HloInstruction, int], find: FindPlain
) -> list[Value | None]:
    """Return the values of small arrays that depend only on constants; None for all other values."""
    values: list[Value | None] = [None] * len(order)
    for n, instruction in enumerate(order):
        evaluate = find(instruction.opcode) if instruction.opcode in _OF_CONSTANTS else None
        shape = instruction.shape
        if evaluate is None or not isinstance(shape, ArrayShape):
            continue
        operands = tuple(values[index[o]] for o in instruction.operands)
        if math.prod(shape.dims) <= _SMALL and all(value is not None for value in operands):
            values[n] = evaluate(instruction, tuple(v for v in operands if v is not None))
    return values


def _needed(computation: HloComputation, effects: SideEffects) -> set[HloInstruction]:
    """Return the instructions on which the root depends, and those with effects. The set is used only for
    membership.
    """
    work = [computation.root, *filter(effects.of, computation.instructions)]
    needed: set[HloInstruction] = set()
    while work:
        instruction = work.pop()
        if instruction not in needed:
            needed.add(instruction)
            work.extend(instruction.operands)
    return needed
