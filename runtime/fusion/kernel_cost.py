"""What one kernel of several instructions costs: work and traffic, from index maps, and seconds on a machine.

A kernel loops over the elements of its results and computes, for each, what the results need, down to its inputs.
Where several instructions need one element of another at the same place, it is computed once; at two places, twice;
what does not change along the innermost loop is computed once per row. An input is fetched once as far as it is
touched, from the memory level that holds all that the kernel touches; touched again, from the one that holds it alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from runtime.fusion.element_graph import post_order
from runtime.fusion.index_maps import (
    Index,
    IndexMap,
    LoopVariables,
    identity,
    operand_accesses,
    reshaped,
)
from runtime.fusion.op_weights import computed_in, seconds_per_element
from spmd.hlo import HloInstruction, Opcode
from spmd.machine.description import MachineDescription

#: How much longer it takes to read along another dimension than that which lies together in memory.
STRIDED = 4.0


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One execution. evaluations: elements computed, of all instructions that compute; code: places they stand in the
    kernel's code. bytes_read, bytes_written: each touched byte once. seconds: from dispatch to end.
    """

    seconds: float
    compute_seconds: float
    bytes_read: float
    bytes_written: float
    evaluations: float
    code: int

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an instruction is needed: at ``map``, inside the loops of ``around``, of which ``inner`` is innermost."""

    map: IndexMap
    around: frozenset[int]
    inner: int | None


def kernel_cost(
    roots: Sequence[HloInstruction],
    inputs: Collection[HloInstruction],
    machine: MachineDescription,
) -> KernelCost:
    """A kernel that gives ``roots``, all of as many elements, from ``inputs``, on ``machine``."""
    walk = _Walk(machine, LoopVariables(list(roots[0].dims)))
    stop = dict.fromkeys(inputs)
    walk.run(roots, post_order(roots, dict.fromkeys(stop, 0)), stop)
    return walk.cost(roots)


@dataclass
class _Walk:
    machine: MachineDescription
    loops: LoopVariables
    demands: dict[HloInstruction, dict[_Place, float]] = field(default_factory=dict)
    reads: dict[HloInstruction, dict[_Place, float]] = field(default_factory=dict)
    compute: float = 0.0
    evaluations: float = 0.0
    code: int = 0

    def run(
        self,
        roots: Sequence[HloInstruction],
        order: Sequence[HloInstruction],
        inputs: Collection[HloInstruction],
    ) -> None:
        """From the roots to the inputs; ``order``: operands first."""
        dims = roots[0].dims
        every = frozenset(range(len(dims)))
        at = identity(len(dims))
        for root in roots:
            own = at if root.dims == dims else reshaped(at, dims, root.dims)
            self._demand(root, _Place(own, every, _innermost(at, dims)), 1.0)
        for instruction in reversed(order):
            places = self.demands.get(instruction, {})
            if instruction in inputs:
                self.reads[instruction] = places
                continue
            for place, share in places.items():
                self._compute(instruction, place, share)

    def _demand(self, instruction: HloInstruction, place: _Place, share: float) -> None:
        places = self.demands.setdefault(instruction, {})
        places[place] = min(1.0, places.get(place, 0.0) + share)

    def _compute(self, instruction: HloInstruction, place: _Place, share: float) -> None:
        before = len(self.loops.sizes)
        accesses = operand_accesses(instruction, place.map, self.loops)
        around, inner = place.around, place.inner
        if len(self.loops.sizes) > before:
            around |= frozenset(range(before, len(self.loops.sizes)))
            inner = _innermost(accesses[0].map, instruction.operand(0).dims)
        rates = self.machine.rates_of(computed_in(instruction))
        each = seconds_per_element(instruction, rates)
        if each:
            inside = place.map if instruction.opcode is not Opcode.REDUCE else accesses[0].map
            times = self._times(_Place(inside, around, inner)) * share
            self.compute += times * each
            self.evaluations += times
            self.code += 1
        for operand, access in zip(instruction.operands, accesses, strict=True):
            self._demand(operand, _Place(access.map, around, inner), share * access.share)

    def _times(self, place: _Place) -> float:
        """How often something is computed there; moved out of the innermost loop where that does not matter to it."""
        variables = _variables(place.map)
        loops = place.around
        if not variables:
            return 1.0
        if place.inner is not None and place.inner not in variables:
            loops -= {place.inner}
        return self.loops.points(loops)

    # ---- memory
    def cost(self, roots: Sequence[HloInstruction]) -> KernelCost:
        machine = self.machine
        written = float(sum(root.shape.byte_size for root in roots))
        touched = {
            x: self._touched(x, places) for x, places in self.reads.items() if x.array_shape.rank
        }
        read = sum(touched.values())
        near = machine.level_for(read + written).bandwidth
        memory = written / near
        for x, size in touched.items():
            memory += size * self._stride_factor(x) / near
            again = self._reads(x) * x.array_shape.element_type.byte_size - size
            if again > 0:
                memory += again / machine.level_for(x.shape.byte_size).bandwidth
        rows = self._rows(roots[0].dims)
        seconds = (
            machine.thunk_seconds
            + machine.kernel_seconds
            + rows * machine.row_seconds
            + max(self.compute, memory)
        )
        return KernelCost(seconds, self.compute, read, written, self.evaluations, self.code)

    def _touched(self, x: HloInstruction, places: dict[_Place, float]) -> float:
        """Bytes of ``x`` that are read at all."""
        points = sum(self.loops.points(_variables(p.map)) * s for p, s in places.items())
        return min(points, x.array_shape.num_elements) * x.array_shape.element_type.byte_size

    def _reads(self, x: HloInstruction) -> float:
        return sum(self._times(place) * share for place, share in self.reads[x].items())

    def _stride_factor(self, x: HloInstruction) -> float:
        """The mean over the places where ``x`` is read."""
        places = self.reads[x]
        return sum(self._place_factor(x, place) for place in places) / max(len(places), 1)

    def _place_factor(self, x: HloInstruction, place: _Place) -> float:
        minor = next((i for i, n in zip(place.map[::-1], x.dims[::-1], strict=True) if n > 1), None)
        if minor is None or place.inner is None or place.inner in minor.variables:
            return 1.0
        return STRIDED if place.inner in _variables(place.map) else 1.0

    def _rows(self, dims: tuple[int, ...]) -> float:
        """How often the innermost loop begins, dimensions that all arrays have in one run being one loop."""
        if any(place.around for places in self.reads.values() for place in places):
            run = min(
                (
                    _trailing_run(place.map, x.dims, dims)
                    for x, places in self.reads.items()
                    for place in places
                ),
                default=len(dims),
            )
        else:
            run = len(dims)
        return float(math.prod(dims[: len(dims) - max(run, 1)])) if dims else 1.0


def _variables(at: IndexMap) -> frozenset[int]:
    return frozenset[int]().union(*(index.variables for index in at))


def _innermost(at: IndexMap, dims: tuple[int, ...]) -> int | None:
    """The loop variable that moves along the last dimension that has several elements."""
    for index, size in zip(reversed(at), reversed(dims), strict=True):
        if size > 1:
            return _last(index)
    return None


def _last(index: Index) -> int | None:
    return index.plain if index.plain is not None else max(index.variables, default=None)


def _trailing_run(at: IndexMap, own: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """How many of the last loop dimensions move through the array as one: all of them in its order, or none at all."""
    variables = _variables(at)
    absent = 0
    for d in reversed(range(len(dims))):
        if d in variables and dims[d] > 1:
            break
        absent += 1
    if absent:
        return absent
    steady = 0
    for k, index in enumerate(reversed(at)):
        d = len(dims) - 1 - k
        if d < 0 or index.plain != d:
            break
        steady += 1
        if own[len(own) - 1 - k] != dims[d]:
            break
    return steady
