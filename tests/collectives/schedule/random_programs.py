"""Random per-device programs with collectives over groups that overlap, for schedules to be made of.

Arrays are f32[8]. Groups are random parts of the devices, so that a device meets others in ever new groups; some
collectives stand in loops, some in branches that only the devices of their group take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.builder import Builder
from spmd.device import ReductionKind, ReplicaGroups
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.collective_opcodes import KIND
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from spmd.source_target_pairs import ListedPairs
from tests.dice import Dice

SIZE = 8
_F32, _S32, _U32 = PrimitiveType.F32, PrimitiveType.S32, PrimitiveType.U32
_ARRAY = ArrayShape(_F32, (SIZE,))
_BINARY = (Opcode.ADD, Opcode.SUBTRACT, Opcode.MAXIMUM, Opcode.MINIMUM)


def random_program(seed: int, devices: int, steps: int = 14) -> HloModule:
    """SCHEDULED, with blocking collectives, in the order in which it was written."""
    return _Program(np.random.default_rng(seed), devices).write(steps)


class _Program(Dice):
    def __init__(self, rng: np.random.Generator, devices: int) -> None:
        self.rng, self.devices = rng, devices
        self.module = HloModule("random")
        self.module.num_partitions = devices
        self.module.stage = Stage.PARTITIONED

    def write(self, steps: int) -> HloModule:
        inner = [self._loop_parts, self._branch_parts]
        parts = [make() for make in inner if self.chance()]
        self.module.entry = self.module.new_computation("main")
        b = Builder(self.module.entry)
        values = [b.parameter(n, _ARRAY) for n in range(3)]
        at = {self.integer(0, steps - 1): part for part in parts}
        for n in range(steps):
            values.append(at[n](b, self._one(values)) if n in at else self._step(b, values))
        results = [v for v in values if not v.users] or values[-1:]
        self.module.entry.root = b.tuple(results)
        self.module.stage = Stage.SCHEDULED
        return self.module

    def _one(self, values: Sequence[HloInstruction]) -> HloInstruction:
        """Mostly a late one."""
        return values[-1 - min(int(self.rng.geometric(0.3)) - 1, len(values) - 1)]

    def _step(self, b: Builder, values: Sequence[HloInstruction]) -> HloInstruction:
        x = self._one(values)
        if self.chance(0.5):
            return b.binary(self.choose(_BINARY), x, self.choose(values))
        return self._collective(b, x)

    # ---- collectives, back to f32[8]
    def _collective(self, b: Builder, x: HloInstruction) -> HloInstruction:
        return self.choose(
            (self._all_reduce, self._all_reduce, self._gather, self._scatter, self._permute)
            + ((self._exchange, self._broadcast) if self.devices > 1 else ())
        )(b, x)

    def _all_reduce(self, b: Builder, x: HloInstruction) -> HloInstruction:
        kind = self.choose((ReductionKind.SUM, ReductionKind.MAX))
        halved = b.multiply(x, b.full(_ARRAY, 0.5))
        return b.all_reduce(halved, self._any_groups(), kind)

    def _gather(self, b: Builder, x: HloInstruction) -> HloInstruction:
        groups, size = self._equal_groups()
        total = b.all_gather(x, groups, 0)
        place = self.integer(0, size - 1) * SIZE
        return b.slice(total, (place,), (place + SIZE,))

    def _scatter(self, b: Builder, x: HloInstruction) -> HloInstruction:
        groups, size = self._equal_groups()
        part = b.reduce_scatter(x, groups, 0, ReductionKind.MAX)
        return b.concatenate([part] * size, 0)

    def _exchange(self, b: Builder, x: HloInstruction) -> HloInstruction:
        groups, _ = self._equal_groups()
        attrs = CollectiveAttrs(groups, b.scope.channel_id(), dimension=0)
        return b.create(Opcode.ALL_TO_ALL, (x,), attrs)

    def _broadcast(self, b: Builder, x: HloInstruction) -> HloInstruction:
        attrs = CollectiveAttrs(self._any_groups(), b.scope.channel_id())
        return b.create(Opcode.COLLECTIVE_BROADCAST, (x,), attrs)

    def _permute(self, b: Builder, x: HloInstruction) -> HloInstruction:
        order = self.shuffled(range(self.devices))
        targets = self.shuffled(order)
        kept = self.integer(1, max(self.devices // 2, 1))
        pairs = ListedPairs(tuple(zip(order, targets, strict=True))[:kept])
        attrs = CollectivePermuteAttrs(pairs, b.scope.channel_id())
        return b.create(Opcode.COLLECTIVE_PERMUTE, (x,), attrs)

    # ---- groups
    def _any_groups(self) -> ReplicaGroups:
        """Any parts, mostly pairs: those overlap without having two devices in common."""
        order, groups = self.shuffled(range(self.devices)), []
        while order:
            size = min(2, len(order)) if self.chance(0.7) else self.integer(1, len(order))
            groups.append(tuple(order[:size]))
            order = order[size:]
        return ReplicaGroups(tuple(groups))

    def _equal_groups(self) -> tuple[ReplicaGroups, int]:
        fitting = [n for n in range(1, self.devices + 1) if self.devices % n == 0 and SIZE % n == 0]
        size = 2 if 2 in fitting and self.chance(0.7) else self.choose(fitting)
        order = self.shuffled(range(self.devices))
        groups = [tuple(order[i : i + size]) for i in range(0, self.devices, size)]
        return ReplicaGroups(tuple(groups)), size

    # ---- loops and branches
    def _loop_parts(self) -> Callable[[Builder, HloInstruction], HloInstruction]:
        """Three trips of a body with collectives."""
        state = TupleShape((ArrayShape(_S32, ()), _ARRAY))
        condition = self._computation("condition", state, self._condition)
        body = self._computation("body", state, self._body)
        return lambda b, x: b.get_tuple_element(
            b.while_loop(b.tuple([b.scalar(_S32, 0), x]), condition, body), 1
        )

    def _condition(self, b: Builder, state: HloInstruction) -> HloInstruction:
        return b.compare(b.get_tuple_element(state, 0), b.scalar(_S32, 3), "LT")

    def _body(self, b: Builder, state: HloInstruction) -> HloInstruction:
        values = [b.get_tuple_element(state, 1)]
        for _ in range(self.integer(2, 5)):
            values.append(self._step(b, values))
        trip = b.add(b.get_tuple_element(state, 0), b.scalar(_S32, 1))
        return b.tuple([trip, values[-1]])

    def _branch_parts(self) -> Callable[[Builder, HloInstruction], HloInstruction]:
        """Devices below a number meet in one branch, the others in the other one."""
        first = self.integer(1, self.devices)
        parts = (range(first), range(first, self.devices))
        below = ReplicaGroups(tuple(tuple(part) for part in parts if part))

        def meet(b: Builder, x: HloInstruction) -> HloInstruction:
            return b.negate(b.all_reduce(b.negate(x), below, ReductionKind.MAX))

        def alone(b: Builder, x: HloInstruction) -> HloInstruction:
            return b.all_reduce(meet(b, b.add(x, x)), below, ReductionKind.MAX)

        branches = [
            self._computation("below", _ARRAY, meet),
            self._computation("above", _ARRAY, alone),
        ]

        def write(b: Builder, x: HloInstruction) -> HloInstruction:
            is_below = b.compare(b.partition_id(), b.scalar(_U32, first), "LT")
            return b.conditional(is_below, branches, [x, x])

        return write

    def _computation(
        self,
        name: str,
        shape: ArrayShape | TupleShape,
        write: Callable[[Builder, HloInstruction], HloInstruction],
    ) -> HloComputation:
        made = self.module.new_computation(name)
        b = Builder(made)
        made.root = write(b, b.parameter(0, shape))
        return made


def program_with_collective(rng: np.random.Generator) -> HloModule:
    """SCHEDULED, of two to five devices; at least one collective."""
    while True:
        module = random_program(int(rng.integers(1 << 30)), int(rng.integers(2, 6)))
        if any(x.opcode in KIND for x in module.all_instructions()):
            return module
