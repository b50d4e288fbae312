"""Replication analysis: on which devices an instruction has equal values, bit for bit.

Equal operands give equal results, as kernels are deterministic. A reduction gives all members of a group the same, and
members of two groups that reduce equal values in equal order as well. What comes from outside (custom calls, random
numbers without a state, infeeds) is taken to differ everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from collectives.passes.device_scalars import device_count, values_by_device
from collectives.passes.equal_devices import DeviceSpace, EqualDevices
from collectives.passes.groups import known_groups
from spmd.device_groups import DeviceGroups, Ids
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import DEVICE_IDS
from spmd.ops.attrs import CollectivePermuteAttrs, TupleIndexAttrs
from spmd.ops.groups import device_ends, group_key
from spmd.shape import ArrayShape, Shape, TupleShape

#: Classes of an array (or a token), or of each element of a tuple.
Known: TypeAlias = EqualDevices | tuple["Known", ...]

#: Ops with results that do not depend on their operands only, or that are not analysed.
_FROM_OUTSIDE = frozenset(
    {
        Opcode.RNG,
        Opcode.RNG_GET_AND_UPDATE_STATE,
        Opcode.INFEED,
        Opcode.OUTFEED,
        Opcode.SEND,
        Opcode.SEND_DONE,
        Opcode.RECV,
        Opcode.RECV_DONE,
        Opcode.CUSTOM_CALL,
        Opcode.ASYNC_START,
        Opcode.ASYNC_UPDATE,
        Opcode.ASYNC_DONE,
        Opcode.ALL_GATHER_START,
        Opcode.ALL_REDUCE_START,
        Opcode.COLLECTIVE_PERMUTE_START,
        Opcode.RAGGED_ALL_TO_ALL,
    }
)
#: Collectives with equal results on all members of a group.
_GIVING_ALL = frozenset({Opcode.ALL_REDUCE, Opcode.ALL_GATHER, Opcode.COLLECTIVE_BROADCAST})
#: Collectives with another part for each position in the group.
_GIVING_PARTS = frozenset({Opcode.REDUCE_SCATTER, Opcode.ALL_TO_ALL})


class Replication:
    """Replication analysis: for each value reachable from the entry, the devices that hold equal data in every loop
    trip.

    The analysis reads the module when the first question is asked; nothing is known of values that are made later.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._space = DeviceSpace(device_count(module))
        self._known: dict[HloInstruction, Known] = {}
        self._heard: dict[tuple[Opcode, DeviceGroups, EqualDevices], EqualDevices] = {}
        self._received: dict[tuple[Hashable, EqualDevices], EqualDevices] = {}
        self._returned: dict[tuple[HloComputation, tuple[Known, ...]], Known] = {}
        self._asking: dict[HloComputation, bool] = {}

    def is_equal_within(self, x: HloInstruction, groups: DeviceGroups) -> bool:
        """Return whether all members of each group have the same array ``x``."""
        if not self._known:
            entry = self._module.entry
            self._run(entry, [self._handed_in(parameter) for parameter in entry.parameters])
        known = self._known.get(x)
        return isinstance(known, EqualDevices) and self._space.is_equal_within(known, groups)

    def learn_equal(self, new: HloInstruction, old: HloInstruction) -> None:
        """Record that ``new``, which was created after the analysis, has the value of ``old``."""
        if old in self._known:
            self._known[new] = self._known[old]

    # ---- computations
    def _handed_in(self, parameter: HloInstruction) -> Known:
        if parameter.sharding is None:
            return self._uniform(parameter.shape, self._space.nowhere)
        shardings = iter(parameter.sharding.leaf_shardings(parameter.shape))

        def of(shape: Shape) -> Known:
            if isinstance(shape, TupleShape):
                return tuple(map(of, shape.elements))
            sharding = next(shardings)
            if not isinstance(shape, ArrayShape):
                return self._space.nowhere
            return self._space.of_parameter(sharding, shape, self._module.num_partitions)

        return of(parameter.shape)

    def _run(self, computation: HloComputation, arguments: Sequence[Known]) -> Known:
        """Return the classes of the result, and update those of every value inside to hold in this run and all earlier
        ones.

        A second run with equal arguments learns nothing new.
        """
        key = computation, tuple(arguments)
        if key not in self._returned:
            for parameter, known in zip(computation.parameters, arguments, strict=True):
                self._learn(parameter, known)
            for x in computation.post_order():
                if x.opcode is not Opcode.PARAMETER:
                    self._learn(x, self._result(x, [self._known[o] for o in x.operands]))
            self._returned[key] = self._known[computation.root]
        return self._returned[key]

    def _learn(self, x: HloInstruction, found: Known) -> None:
        before = self._known.get(x)
        self._known[x] = found if before is None else self._both(before, found)

    def _result(self, x: HloInstruction, operands: Sequence[Known]) -> Known:
        if x.opcode is Opcode.TUPLE:
            return tuple(operands)
        if x.opcode is Opcode.GET_TUPLE_ELEMENT:
            return _elements(operands[0])[x.attrs_as(TupleIndexAttrs).index]
        if x.opcode in (Opcode.OPT_BARRIER, Opcode.COPY, Opcode.DOMAIN):
            return operands[0]
        if x.opcode is Opcode.WHILE:
            return self._loop(x, operands[0])
        if x.opcode is Opcode.CONDITIONAL:
            branches = zip(x.called_computations, operands[1:], strict=True)
            results = [self._run(branch, [argument]) for branch, argument in branches]
            return self._narrowed(reduce(self._both, results), self._flat(operands[0]))
        if x.opcode in (Opcode.CALL, Opcode.FUSION):
            return self._run(x.to_apply, operands)
        return self._of_arrays(x, operands)

    def _loop(self, x: HloInstruction, state: Known) -> Known:
        """Iterate the body until the equalities of the state's elements are a fixpoint."""
        while True:
            goes_on = self._flat(self._run(x.while_condition, [state]))
            following = self._both(state, self._run(x.while_body, [state]))
            if following == state:
                return self._narrowed(state, goes_on)
            state = following

    # ---- instructions
    def _of_arrays(self, x: HloInstruction, operands: Sequence[Known]) -> Known:
        if x.opcode in _FROM_OUTSIDE or self._asks_for_more(x):
            return self._uniform(x.shape, self._space.nowhere)
        arrays = [self._flat(operand) for operand in operands]
        if x.opcode in DEVICE_IDS:
            return self._number(x, self._space.nowhere)
        if x.opcode in _GIVING_ALL or x.opcode in _GIVING_PARTS:
            return self._collective(x, arrays)
        if x.opcode is Opcode.COLLECTIVE_PERMUTE:
            return self._permute(x, arrays)
        common = reduce(self._space.both, arrays, self._space.everywhere)
        if common is not self._space.everywhere and isinstance(x.shape, ArrayShape):
            return self._number(x, common)
        return self._uniform(x.shape, common)

    def _number(self, x: HloInstruction, otherwise: EqualDevices) -> EqualDevices:
        """Return the classes of an integer that depends on the device's number only; ``otherwise`` for other values."""
        is_integer = isinstance(x.shape, ArrayShape) and x.shape.element_type.is_integer
        values = values_by_device(x) if is_integer and not x.dims else None
        return otherwise if values is None else self._space.of(values)

    def _collective(self, x: HloInstruction, operands: Sequence[EqualDevices]) -> Known:
        groups = known_groups(x)
        one_by_one = not isinstance(x.shape, TupleShape) or x.opcode is not Opcode.ALL_TO_ALL
        if groups is None or not one_by_one:
            return self._uniform(x.shape, self._space.nowhere)
        results = [self._after(x.opcode, groups, o) for o in operands]
        return tuple(results) if isinstance(x.shape, TupleShape) else results[0]

    def _after(self, opcode: Opcode, groups: DeviceGroups, operand: EqualDevices) -> EqualDevices:
        """Return the classes of the result; a device in no group is equal to no other."""
        key = opcode, groups, operand
        if key not in self._heard:
            devices = self._space.devices
            met = self._space.group_classes(operand, groups)
            found = -1 - np.arange(devices, dtype=np.int64)  # of those in no group
            found[groups.devices] = met[groups.numbers]
            positions = (
                groups.positions(devices) if opcode in _GIVING_PARTS else np.zeros_like(found)
            )
            self._heard[key] = self._space.of_each(found, positions)
        return self._heard[key]

    def _permute(self, x: HloInstruction, operands: Sequence[EqualDevices]) -> Known:
        """Return the classes of received values: targets of equal sources are equal, and devices that are no target
        have zeros.
        """
        if x.attrs_as(CollectivePermuteAttrs).slice_sizes:
            return self._space.nowhere
        results = []
        for o in operands:
            key = group_key(x), o
            if key not in self._received:
                self._received[key] = self._space.of(self._sent(x, o))
            results.append(self._received[key])
        return tuple(results) if isinstance(x.shape, TupleShape) else results[0]

    def _sent(self, permute: HloInstruction, operand: EqualDevices) -> Ids:
        """Return for each device the lowest device with the source's value; -1 if it has no source."""
        ends = device_ends(permute, self._module.num_partitions, self._module.replica_count)
        sent = np.full(self._space.devices, -1, np.int64)
        sent[ends[:, 1]] = operand.first[ends[:, 0]]
        return sent

    def _asks_for_more(self, x: HloInstruction) -> bool:
        """Return whether a called reducer or element function reads the device's number or external data."""
        return any(map(self._is_asking, x.called_computations))

    def _is_asking(self, callee: HloComputation) -> bool:
        if callee not in self._asking:
            self._asking[callee] = any(
                x.opcode in DEVICE_IDS or x.opcode in _FROM_OUTSIDE or self._asks_for_more(x)
                for x in callee.instructions
            )
        return self._asking[callee]

    # ---- what is known of tuples
    def _uniform(self, shape: Shape, known: EqualDevices) -> Known:
        """Return ``known`` for every element of ``shape``."""
        if isinstance(shape, TupleShape):
            return tuple(self._uniform(element, known) for element in shape.elements)
        return known

    def _both(self, x: Known, y: Known) -> Known:
        if isinstance(x, EqualDevices) and isinstance(y, EqualDevices):
            return self._space.both(x, y)
        return tuple(map(self._both, _elements(x), _elements(y)))

    def _narrowed(self, x: Known, by: EqualDevices) -> Known:
        """Return the classes of ``x``, refined by ``by``: devices that differ in whether they execute
        it are unequal.
        """
        if isinstance(x, EqualDevices):
            return self._space.both(x, by)
        return tuple(self._narrowed(element, by) for element in x)

    def _flat(self, x: Known) -> EqualDevices:
        """Return the classes of devices on which all arrays of ``x`` are equal."""
        if isinstance(x, EqualDevices):
            return x
        return reduce(self._space.both, map(self._flat, x), self._space.everywhere)


def _elements(x: Known) -> tuple[Known, ...]:
    assert isinstance(x, tuple)
    return x
