"""Work of loops over elements: the steps of their scalar programs per index and per row, and the array accesses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.loop.loop import ArrayAccess, crossed_accesses, track, track_of
from runtime.cpu.kernels.loop.unrolling import unrolled
from runtime.cpu.prediction.work import (
    WORK,
    Access,
    Busy,
    Work,
    element_busy,
    stored_bytes,
)
from runtime.program.records.loop import (
    LoopKernel,
    Numbers,
    PiecesKernel,
    UpdateKernel,
)
from runtime.program.scalar_program import ScalarConstant, ScalarProgram
from runtime.program.strides import StridedView, in_streaming_order, merged_dims
from runtime.program.thunks import KernelThunk
from spmd.cost.elements import element_seconds
from spmd.cost.traffic import TRANSPOSED, stride_slowdown
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop nest in execution order, the innermost loop last, with the strides of each array access."""

    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]
    crossed: Sequence[bool]

    @property
    def points(self) -> float:
        return math.prod(map(float, self.sizes))

    @property
    def rows(self) -> float:
        return math.prod(map(float, self.sizes[:-1]))

    def strided(self, number: int, item: int) -> bool:
        """Return whether the innermost loop reads or writes elements of access ``number`` one by one."""
        return not self.crossed[number] and self.strides[number][-1] not in (0, item)

    def slowdown(self, number: int, item: int) -> float:
        if self.crossed[number]:
            return TRANSPOSED
        return stride_slowdown(self.strides[number][-1], item)


def nest_of(dims: Sequence[int], tracks: Sequence[ArrayAccess], inputs: int) -> Nest:
    """Return the loop nest as ``runtime/cpu/kernels/loop/loop.py`` plans it."""
    order = in_streaming_order(dims, tracks, inputs)
    strides = [[track.strides[d] for d in order] for track in tracks]
    sizes, merged = merged_dims([dims[d] for d in order], strides)
    if not sizes:
        sizes, merged = [1], [[0]] * len(tracks)
    return Nest(sizes, merged, crossed_accesses(sizes, merged, tracks))


#: Bytes of a vector, the least that arithmetic takes time for.
VECTOR_BYTES = 64
#: Times of each access that a row begins and of each element that is accessed or computed without vectors, in additions
#: of a vector and of an element (380 loops of eight programs on a Xeon: 0.16 and 0.12 ns, beside 0.17 and 0.010 ns).
ROW_ACCESS, ALONE = 1.0, 11.0
#: Lines of a loop's body for each array, and the fewest for each strided array of a loop that has vectors
#: (``runtime/codegen/vectorizer/loops.py``, processors with masks).
LINES_OF_ACCESS, LEAST_LINES = 2, 8


def padded_size(elements: int, item: int) -> float:
    """Return ``elements`` of ``item`` bytes rounded up to whole vectors."""
    lanes = VECTOR_BYTES // item
    return float(-(-elements // lanes) * lanes)


def access_seconds(rows: float, accesses: int, alone: float, machine: MachineDescription) -> float:
    """Return the seconds of beginning ``rows`` rows of ``accesses`` arrays, and of ``alone`` operations on elements."""
    addition = element_seconds(Opcode.ADD, PrimitiveType.F32, PrimitiveType.F32, machine)
    of_vector = VECTOR_BYTES // PrimitiveType.F32.byte_size * addition
    return ROW_ACCESS * of_vector * rows * accesses + ALONE * addition * alone


def program_busy(
    program: ScalarProgram, varies: Sequence[bool], machine: MachineDescription
) -> tuple[Busy, Busy]:
    """Return the busy times per index and per row.

    A step counts per row if it depends on no parameter that ``varies`` along the innermost loop.
    """
    moving = list(varies)
    each = row = Busy()
    for step in program.steps:
        if isinstance(step, ScalarConstant):
            moving.append(False)
            continue
        own = any(moving[operand] for operand in step.operands)
        moving.append(own)
        kinds = step.signature.operands
        operand = kinds[-1] if kinds else step.signature.result
        busy = element_busy(step.signature.opcode, operand, step.signature.result, machine)
        each, row = (each + busy, row) if own else (each, row + busy)
    return each, row


def loop_access(array: ArrayView, view: StridedView, slowdown: float) -> Access:
    """Return the access of a loop to all elements of ``view``, which begins at the first element of ``array``."""
    item = view.element_type.byte_size
    pairs = zip(view.dims, view.strides, strict=True)
    distinct = math.prod(float(size) for size, stride in pairs if stride) * item
    stored = array.view.byte_size
    size = min(distinct, stored)
    again = view.num_elements * item - size if view.strides and view.strides[-1] else 0.0
    return Access(array, size, slowdown, max(again, 0.0))


def merged(accesses: Sequence[Access]) -> tuple[Access, ...]:
    """Merge the accesses to each array, of which all reads but the first find the array in the cache."""
    by_array: dict[ArrayView, Access] = {}
    for one in accesses:
        old = by_array.get(one.array)
        if old is None:
            by_array[one.array] = one
            continue
        size = min(old.size + one.size, one.array.view.byte_size)
        again = old.again + one.again + old.size + one.size - size
        by_array[one.array] = Access(one.array, size, max(old.slowdown, one.slowdown), again)
    return tuple(by_array.values())


@WORK.register(LoopKernel)
def loop_work(kernel: LoopKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    kernel = unrolled(kernel)
    leaves, count = dict.fromkeys(kernel.leaves), len(kernel.leaves)
    results = zip(kernel.results, [thunk.results[n] for n in kernel.written], strict=True)
    tracks = [track_of(leaf) for leaf in kernel.leaves]
    tracks += [track(view) for view in kernel.results]
    nest = nest_of(kernel.dims, tracks, count)
    varies = [bool(nest.strides[n][-1]) for n in range(count)]
    each, row = program_busy(kernel.program, varies, machine)
    number = {leaf: n for n, leaf in enumerate(kernel.leaves)}
    accesses = [
        loop_access(thunk.operands[leaf.operand], leaf.view, _slowdown(nest, number[leaf], tracks))
        for leaf in leaves
        if not isinstance(leaf, Numbers)
    ]
    written = [
        loop_access(array, view, _slowdown(nest, count + n, tracks))
        for n, (view, array) in enumerate(results)
    ]
    items = {n: one.item for n, one in enumerate(tracks) if not one.counts}
    strided = sum(nest.strided(n, item) for n, item in items.items())
    item = max(items.values(), default=1)
    computed, alone = nest.rows * padded_size(nest.sizes[-1], item), nest.points * strided
    if _is_scalar(kernel.program, strided):
        computed, alone = nest.points, nest.points * len(kernel.program.steps)
    busy = each.times(computed) + row.times(nest.rows)
    return Work(
        (*merged(accesses), *merged(written)),
        busy.arithmetic + access_seconds(nest.rows, len(tracks), alone, machine),
        rows=nest.rows,
        divider=busy.divider,
    )


def _is_scalar(program: ScalarProgram, strided: int) -> bool:
    """Return whether a loop has no vectors, because it computes little of many ``strided`` arrays."""
    accesses = len(program.parameters) + len(program.results)
    return len(program.steps) + LINES_OF_ACCESS * accesses < LEAST_LINES * strided


def _slowdown(nest: Nest, number: int, tracks: Sequence[ArrayAccess]) -> float:
    return nest.slowdown(number, tracks[number].item)


@WORK.register(PiecesKernel)
def pieces_work(kernel: PiecesKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    parts = [loop_work(piece, thunk, machine) for piece in kernel.pieces]
    return _in_sequence(parts, [access for part in parts for access in part.accesses])


def _in_sequence(parts: Sequence[Work], accesses: Sequence[Access]) -> Work:
    """Return the work of loops that run one after the other."""
    compute, divider = (sum(part.compute for part in parts), sum(part.divider for part in parts))
    rows = sum(part.rows for part in parts)
    return Work(merged(accesses), compute, len(parts), rows, divider=divider)


@WORK.register(UpdateKernel)
def update_work(kernel: UpdateKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of an in-place update. If the result is not the operand's memory, the operand is copied first."""
    parts = [loop_work(piece, thunk, machine) for piece in kernel.pieces]
    accesses = [access for part in parts for access in part.accesses]
    for result, operand in kernel.updates:
        source, target = thunk.operands[operand], thunk.results[result]
        if source.slice != target.slice:
            accesses += [Access(array, stored_bytes(array)) for array in (source, target)]
    return _in_sequence(parts, accesses)
