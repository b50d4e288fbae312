"""Cost of a loop over the elements of a kernel's results: work and traffic, from index maps.

The loop computes for each element the values that the results need, down to the kernel's inputs. An element that
several instructions need with the same index map is computed once; with two maps, twice. A value that does not change
along the innermost loop is computed once per row. Each touched byte of an input is fetched once; bytes that are touched
again come from the memory level that holds them.

Kernels that fusion tries have most of their instructions in common. The reads that an instruction makes of its operands
at an index map are therefore cached for all kernels with the same loop dimensions (``LoopSpace``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from runtime.fusion.cost.cost_model import CostModel, KernelCost
from runtime.fusion.cost.loop_edges import Edges, add_edges, piece_count
from runtime.fusion.index_maps import Index, IndexMap, identity, operand_accesses, reshaped
from spmd.cost.traffic import STRIDED
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.opdef import OPS


@dataclass(eq=False, slots=True)
class _ElementUse:
    """Use of an instruction's elements at the indices ``map``, which depend on the loop variables ``variables``.

    ``times`` is the number of evaluations, and ``points`` the number of different indices among them. ``inner`` is the
    loop variable that moves fastest through the kernel's result, or None if the result has one element.
    """

    map: IndexMap
    inner: int | None
    variables: frozenset[int]
    times: float
    points: float


#: Opcodes whose result index decides which operand is read.
_PIECEWISE = frozenset({Opcode.CONCATENATE, Opcode.PAD})
#: The uses of one instruction, each with the fraction of the loop's indices at which it takes place.
_Uses: TypeAlias = dict[_ElementUse, float]


class _OperandUse(NamedTuple):
    """Use of ``operand`` by an instruction, for the fraction ``share`` of that instruction's elements."""

    operand: HloInstruction
    use: _ElementUse
    share: float


class _Reading(NamedTuple):
    """Cost of reading an array in memory at all indices of one use.

    ``touched`` is the number of bytes that are read at least once. Fetching them takes ``first`` seconds, times
    ``slowdown`` if the innermost loop strides through the array; rereading bytes takes ``again`` seconds. ``run`` is
    the number of trailing loop dimensions that traverse the array in memory order, or that the array does not depend
    on.
    """

    slowdown: float
    run: int
    touched: float
    first: float
    again: float


@dataclass(eq=False, slots=True)
class _Instruction:
    """Cached costs of the instruction ``x`` in a loop space; computing one element takes ``seconds``.

    ``operand_uses`` maps a use of ``x`` to the uses of operands that it causes, and ``readings`` maps it to the cost of
    reading ``x`` if that is in memory.
    """

    x: HloInstruction
    seconds: float
    operand_uses: dict[_ElementUse, tuple[_OperandUse, ...]] = field(default_factory=dict)
    readings: dict[_ElementUse, _Reading] = field(default_factory=dict)


@dataclass(eq=False)
class LoopSpace:
    """Index space of all loops over ``sizes``.

    It caches the uses and the costs of the instructions that are computed in such loops. There is exactly one
    ``_ElementUse`` for each pair of an index map and an innermost variable.
    """

    cost_model: CostModel
    sizes: tuple[int, ...]
    _uses: dict[tuple[IndexMap, int | None], _ElementUse] = field(default_factory=dict)
    _instructions: dict[HloInstruction, _Instruction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._points = math.prod(map(float, self.sizes))
        self._wide = [d for d, size in enumerate(self.sizes) if size != 1]

    def of_root(self, root: HloInstruction) -> _ElementUse:
        """Return the use of the elements of ``root`` by the loop, which writes one of them at each index."""
        at = identity(len(self.sizes))
        inner = _innermost(at, self.sizes)
        return self.use(
            at if root.dims == self.sizes else reshaped(at, self.sizes, root.dims), inner
        )

    def use(self, at: IndexMap, inner: int | None) -> _ElementUse:
        """Return the use of elements at the index map ``at`` in a loop whose variable ``inner`` moves fastest."""
        key = (at, inner)
        found = self._uses.get(key)
        if found is None:
            variables = frozenset[int]().union(*(index.variables for index in at))
            points = math.prod(float(self.sizes[v]) for v in variables)
            times = self._times(variables, inner)
            found = self._uses[key] = _ElementUse(at, inner, variables, times, points)
        return found

    def _times(self, variables: frozenset[int], inner: int | None) -> float:
        """Return how often a value that depends on ``variables`` is computed.

        It is computed at each index of the loop, or once per row if it does not depend on ``inner``.
        """
        if not variables:
            return 1.0
        if inner is None or inner in variables:
            return self._points
        return self._points / max(self.sizes[inner], 1)

    def instruction(self, x: HloInstruction) -> _Instruction:
        """Return the cached costs of ``x``."""
        found = self._instructions.get(x)
        if found is None:
            found = self._instructions[x] = _Instruction(x, self.cost_model.element(x))
        return found

    def operand_uses(self, one: _Instruction, use: _ElementUse) -> tuple[_OperandUse, ...]:
        """Return the uses of operands that ``use`` of the instruction ``one`` causes."""
        found = one.operand_uses.get(use)
        if found is None:
            found = one.operand_uses[use] = tuple(self._operand_uses_of(one.x, use))
        return found

    def _operand_uses_of(self, x: HloInstruction, use: _ElementUse) -> Iterable[_OperandUse]:
        """Yield the uses of operands that ``use`` of ``x`` causes."""
        if OPS[x.opcode].elementwise:
            for operand in x.operands:
                same = use if operand.array_shape.rank else self.use((), use.inner)
                yield _OperandUse(operand, same, 1.0)
            return
        for operand, access in zip(x.operands, operand_accesses(x, use.map), strict=True):
            yield _OperandUse(operand, self.use(access.map, use.inner), access.share)

    def reading(self, one: _Instruction, use: _ElementUse) -> _Reading:
        """Return the cost of reading ``one``, whose value is in memory, at the indices of ``use``."""
        found = one.readings.get(use)
        if found is None:
            found = one.readings[use] = self._reading_of(one.x, use)
        return found

    def _reading_of(self, x: HloInstruction, use: _ElementUse) -> _Reading:
        """Return the cost of reading ``x``, which is in memory, at the indices of ``use``."""
        run = _trailing_run(use, x.dims, self.sizes, self._wide)
        slowdown = _slowdown(x.dims, use)
        touched, first, again = _traffic(self.cost_model, x, use.points, use.times)
        return _Reading(slowdown, run, touched, first, again)

    def rows(self, run: int) -> float:
        """Return how often the innermost loop begins if the last ``run`` dimensions of several indices are one loop."""
        return float(math.prod(self.sizes[d] for d in self._wide[: len(self._wide) - max(run, 1)]))

    @property
    def longest_run(self) -> int:
        """Return the number of dimensions of more than one index."""
        return len(self._wide)


@dataclass
class LoopSpaces:
    """Cache of the loop spaces of the kernels of one module, by their sizes."""

    cost_model: CostModel
    _spaces: dict[tuple[int, ...], LoopSpace] = field(default_factory=dict)

    def cost(
        self,
        roots: Sequence[HloInstruction],
        members: Sequence[HloInstruction],
        inputs: Iterable[HloInstruction],
    ) -> KernelCost:
        """Return the cost of a kernel that computes ``roots``, all of equally many elements, from ``inputs``.

        ``members`` lists the instructions that the kernel computes, operands first.
        """
        sizes = written_block(roots[0]).dims
        space = self._spaces.get(sizes)
        if space is None:
            space = self._spaces[sizes] = LoopSpace(self.cost_model, sizes)
        return _loop_cost(space, roots, members, inputs)


def written_block(root: HloInstruction) -> HloInstruction:
    """Return the instruction whose elements a loop writes for ``root``.

    This is the update operand if ``root`` is a dynamic-update-slice, possibly reshaped, and otherwise ``root`` itself.
    """
    update = root
    while update.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        update = update.operand(0)
    return update.operand(1) if update.opcode is Opcode.DYNAMIC_UPDATE_SLICE else root


def _loop_cost(
    space: LoopSpace,
    roots: Sequence[HloInstruction],
    members: Sequence[HloInstruction],
    inputs: Iterable[HloInstruction],
) -> KernelCost:
    """Traverse the kernel from its roots to its inputs, and add up work and reads."""
    cost_model = space.cost_model
    blocks = list(map(written_block, roots))
    uses_of: dict[HloInstruction, _Uses] = {}
    for block in blocks:
        _add_use(uses_of.setdefault(block, {}), space.of_root(block), 1.0)
    compute = 0.0
    code = counting = values = 0
    edges: Edges = {}
    for x in reversed(members):
        uses = uses_of.get(x)
        if uses is None:
            continue
        values += len(uses)
        opcode = x.opcode
        if opcode is Opcode.CONSTANT:
            continue
        if opcode is Opcode.IOTA:
            counting += len(uses)
        elif opcode in _PIECEWISE:
            for use in uses:
                add_edges(edges, x, use.map)
        one = space.instruction(x)
        if one.seconds:
            times = sum([use.times * share for use, share in uses.items()])
            compute += times * one.seconds
            code += len(uses)
        for use, share in uses.items():
            for operand, there, part in space.operand_uses(one, use):
                known = uses_of.get(operand)
                if known is None:
                    uses_of[operand] = {there: share * part}
                else:
                    _add_use(known, there, share * part)
    reads = {x: uses_of[x] for x in inputs if x in uses_of}
    memory, read, (run, next_run) = _memory(space, reads)
    written = [float(block.shape.byte_size) for block in blocks]
    memory += sum(map(cost_model.array, written))
    leaves = sum(map(len, reads.values()))
    pieces = piece_count(edges, space.sizes)
    return KernelCost(
        cost_model.kernel(max(compute, memory), space.rows(run), pieces),
        cost_model.kernel(compute, space.rows(next_run), pieces),
        read,
        sum(written),
        code,
        counting + leaves,
        values + leaves,
        pieces,
    )


def _add_use(uses: _Uses, use: _ElementUse, share: float) -> None:
    """Add ``use`` of an instruction at the fraction ``share`` of the loop's indices to ``uses``."""
    uses[use] = min(1.0, uses.get(use, 0.0) + share)


def _memory(
    space: LoopSpace, reads: Mapping[HloInstruction, _Uses]
) -> tuple[float, float, list[int]]:
    """Return the seconds of all reads, the bytes that they touch, and the two shortest runs.

    A run is the number of trailing loop dimensions that are contiguous for an array; the two are those of the array
    with the fewest such dimensions and of the array with the second fewest.
    """
    seconds = read = 0.0
    runs = [space.longest_run] * 2
    for x, uses in reads.items():
        one = space.instruction(x)
        readings = [space.reading(one, use) for use in uses]
        runs.append(min([each.run for each in readings]))
        if not x.dims:
            continue
        if len(uses) == 1 and 1.0 in uses.values():
            ((slowdown, _, touched, first, again),) = readings
        else:
            points = sum([use.points * share for use, share in uses.items()])
            times = sum([use.times * share for use, share in uses.items()])
            touched, first, again = _traffic(space.cost_model, x, points, times)
            slowdown = sum([each.slowdown for each in readings]) / max(len(readings), 1)
        read += touched
        seconds += first * slowdown
        seconds += again
    return seconds, read, sorted(runs)[:2]


def _traffic(
    cost_model: CostModel, x: HloInstruction, points: float, times: float
) -> tuple[float, float, float]:
    """Return the traffic of ``times`` reads of ``x`` at ``points`` different indices.

    The result is the number of touched bytes, the seconds to fetch them once, and the seconds of all further reads.
    """
    item = x.array_shape.element_type.byte_size
    elements = min(points, x.array_shape.num_elements)
    again = times - elements
    return (
        elements * item,
        cost_model.array(elements * item),
        cost_model.again(again * item, x.shape.byte_size) if again > 0 else 0.0,
    )


def _slowdown(dims: tuple[int, ...], use: _ElementUse) -> float:
    """Return the factor by which strided access slows down reading an array of sizes ``dims``."""
    minor = next((i for i, n in zip(use.map[::-1], dims[::-1], strict=True) if n > 1), None)
    if minor is None or use.inner is None or use.inner in minor.variables:
        return 1.0
    return STRIDED if use.inner in use.variables else 1.0


def _innermost(at: IndexMap, dims: tuple[int, ...]) -> int | None:
    """Return the loop variable that moves along the last dimension of ``dims`` with more than one element, or None."""
    for index, size in zip(reversed(at), reversed(dims), strict=True):
        if size > 1:
            return _last(index)
    return None


def _last(index: Index) -> int | None:
    """Return the loop variable that moves fastest in ``index``, or None if it is constant."""
    return index.plain if index.plain is not None else max(index.variables, default=None)


def _trailing_run(
    use: _ElementUse, own: tuple[int, ...], dims: tuple[int, ...], wide: Sequence[int]
) -> int:
    """Return how many trailing dimensions of the loop form one contiguous run for an array of sizes ``own``.

    They either traverse the array in memory order, or the array does not depend on them. ``wide`` lists the loop
    dimensions of more than one index, and ``dims`` the sizes of all.
    """
    absent = 0
    for d in reversed(wide):
        if d in use.variables:
            break
        absent += 1
    if absent:
        return absent
    steady = 0
    moving = [(index, size) for index, size in zip(use.map, own, strict=True) if size != 1]
    for (index, size), d in zip(reversed(moving), reversed(wide), strict=False):
        if index.plain != d:
            break
        steady += 1
        if size != dims[d]:
            break
    return steady
