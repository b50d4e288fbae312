"""Loop kernels: a scalar program at every index of a space, on strided arrays, as one native call."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_jit
from runtime.cpu.kernels.copy.copy import copying, transpose_code, transpose_name
from runtime.cpu.kernels.native_call import NOTHING, in_order, native_call
from runtime.program.argument_record import Record, Word, record
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.loop import (
    LoopKernel,
    LoopLeaf,
    Numbers,
    PiecesKernel,
    StartsStage,
    UpdateKernel,
    one_operation,
)
from runtime.program.scalar_program import ElementSignature, ScalarProgram
from runtime.program.slice_starts import (
    NestRecord,
    StageRecord,
    StageVariant,
    StartsRecord,
    StartsVariant,
    without_constants,
)
from runtime.program.strides import (
    LEAST_TILED,
    Range,
    Shift,
    StridedView,
    in_streaming_order,
    merged_apart,
)
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

FUNCTION = "spmd_loop"

#: Largest size of an innermost dimension that is unrolled (unrolling.py), and largest innermost stride, in elements,
#: that is a constant of the code (Zen 5: with 9 instead of 4 a step of MJX takes 0.95 of the time, and a column times
#: [1000000,8] 1.3 times as long).
MOST_SIDE_BY_SIDE = 4

#: Element widths in bytes that are transposed in registers.
TRANSPOSED_WIDTHS = frozenset({1, 2, 4, 8})


class InnerStride(Enum):
    """Kind of a stride along the innermost dimension: that of adjacent elements (PACKED), 0 (REPEATED) or another."""

    PACKED = "packed"
    REPEATED = "repeated"
    STRIDED = "strided"

    @classmethod
    def of(cls, stride: int, item: int) -> InnerStride:
        """Return the kind of a stride of ``stride`` bytes between elements of ``item`` bytes."""
        if stride == item:
            return cls.PACKED
        return cls.REPEATED if stride == 0 else cls.STRIDED


@dataclass(frozen=True, slots=True)
class LoopVariant:
    """Variant of a loop's code. The loop has ``rank`` (>= 1) dimensions.

    ``leaves`` and ``results`` are the kinds of the arrays' innermost strides. ``counted`` marks the leaves that are
    iota numbers (s64). ``apart`` gives, for each leaf and then each result, an innermost stride that is a constant of
    the code, in bytes: that of a STRIDED array if it is positive and at most MOST_SIDE_BY_SIDE elements, else 0.
    ``crossed`` marks the leaves and results that are contiguous along the dimension before the innermost one and are
    transposed tile by tile. ``apart`` and ``crossed`` are empty if they mark none. ``ranges`` lists pairs: a dimension
    with a limited range (None: the range decides whether the loop runs at all), and the number of the run-time start
    that limits it.
    """

    program: ScalarProgram
    rank: int
    leaves: tuple[InnerStride, ...]
    results: tuple[InnerStride, ...]
    counted: tuple[bool, ...]
    starts: StartsVariant
    apart: tuple[int, ...] = ()
    crossed: tuple[bool, ...] = ()
    ranges: tuple[tuple[int | None, int], ...] = ()


@record
class RangeRecord(Record):
    """Range of indices i with ``first`` <= i + s < ``end``, where s is a run-time start clamped to [0, ``limit``]."""

    limit: Word
    first: Word
    end: Word


@record
class LoopRecord(NestRecord):
    """Record of a loop nest. ``ranges`` has one item for each of the variant's ``ranges``, in the same order."""

    ranges: Sequence[RangeRecord]


@cache
def loop_code(variant: LoopVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a LoopRecord."""
    turning = {transpose_name(width): transpose_code(width) for width in transposed_widths(variant)}
    ir = DeferredIr("runtime.cpu.kernels.loop.loop_ir", "loop_ir", (variant,))
    return host_jit().compile(ir, (FUNCTION,), turning)


def transposed_widths(variant: LoopVariant) -> list[int]:
    """Return the distinct element widths of the crossed arrays in bytes, in ascending order."""
    program = variant.program
    kinds = (*program.parameters, *(program.kind_of(result) for result in program.results))
    crossed = zip(kinds, variant.crossed, strict=False)
    return sorted({kind.byte_size for kind, crosses in crossed if crosses})


@CPU_KERNELS.binds(LoopKernel)
def bind_loop_kernel(kernel: LoopKernel, arrays: KernelArrays) -> Action:
    """Bind the loop as one native call. A short innermost dimension is unrolled first (see unrolling.py)."""
    if any(1 < size <= MOST_SIDE_BY_SIDE for size in kernel.dims):
        from runtime.cpu.kernels.loop.unrolling import unrolled  # most programs have no such loops

        kernel = unrolled(kernel)
    accesses = [leaf_access(leaf, arrays.operands) for leaf in kernel.leaves]
    shifts = kernel.result_shifts or ((),) * len(kernel.results)
    accesses += [
        access_of(view, arrays.results[n], moved)
        for view, n, moved in zip(kernel.results, kernel.written, shifts, strict=True)
    ]
    starts = starting_accesses(kernel.starts, arrays.operands)
    every = (*arrays.operands, *arrays.results)
    return bind_loop(kernel.program, kernel.dims, accesses, every, starts, kernel.ranges)


@CPU_KERNELS.binds(PiecesKernel)
def bind_pieces(kernel: PiecesKernel, arrays: KernelArrays) -> Action:
    """Bind the loops, which run one after the other."""
    return in_order(*(bind_loop_kernel(piece, arrays) for piece in kernel.pieces))


@CPU_KERNELS.binds(UpdateKernel)
def bind_update(kernel: UpdateKernel, arrays: KernelArrays) -> Action:
    """Bind the copies of the updated operands, unless a result has the operand's memory, and then the loops."""
    copies = [
        copying(arrays.operands[number].reshape(arrays.results[n].shape), arrays.results[n])
        for n, number in kernel.updates
        if not np.may_share_memory(arrays.operands[number], arrays.results[n])
    ]
    return in_order(*copies, *(bind_loop_kernel(piece, arrays) for piece in kernel.pieces))


@dataclass(frozen=True, slots=True)
class ArrayAccess:
    """Access to an array: the address of the first element, and the strides and the element size in bytes.

    If it ``counts``, its elements are iota numbers from ``start`` on instead of memory, and the element size is 1.
    ``shifts`` are the run-time offsets of the first element.
    """

    start: int
    strides: tuple[int, ...]
    item: int
    counts: bool = False
    shifts: tuple[Shift, ...] = ()


def access_of(view: StridedView, array: NDArray, shifts: tuple[Shift, ...] = ()) -> ArrayAccess:
    """Return the access to the elements of ``view``, whose offset is relative to the first element of ``array``."""
    first, item = array.ctypes.data + view.offset, view.element_type.byte_size
    return ArrayAccess(first, view.strides, item, shifts=shifts)


def leaf_access(leaf: LoopLeaf, operands: Sequence[NDArray]) -> ArrayAccess:
    """Return the access of ``leaf``, which reads one of ``operands`` or is iota numbers."""
    if isinstance(leaf, Numbers):
        return ArrayAccess(leaf.view.offset, leaf.view.strides, 1, True, leaf.shifts)
    return access_of(leaf.view, operands[leaf.operand], leaf.shifts)


def track(view: StridedView, *, counts: bool = False) -> ArrayAccess:
    """Return the access to ``view`` at address 0, to compare layouts. If it ``counts``, it is of iota numbers."""
    return ArrayAccess(0, view.strides, 1 if counts else view.element_type.byte_size, counts)


def track_of(leaf: LoopLeaf) -> ArrayAccess:
    """Return the access of ``leaf`` at address 0, to compare layouts."""
    return track(leaf.view, counts=isinstance(leaf, Numbers))


#: Stages that compute run-time starts: each is a program and the accesses of its parameters.
Starting: TypeAlias = Sequence[tuple[ScalarProgram, Sequence[ArrayAccess]]]


def starting_accesses(stages: Sequence[StartsStage], operands: Sequence[NDArray]) -> Starting:
    """Return the programs of ``stages``, each with the accesses of its parameters to ``operands``."""
    return [
        (stage.program, [leaf_access(leaf, operands) for leaf in stage.leaves]) for stage in stages
    ]


def starts_variant(starts: Starting, accesses: Sequence[ArrayAccess]) -> StartsVariant:
    """Return the variant of the code that computes the run-time ``starts`` and offsets ``accesses`` by them."""
    if not starts:
        return StartsVariant((), ((),) * len(accesses))
    stages = []
    for program, own in starts:
        general, constants = without_constants(program)
        counted = (*(w.counts for w in own), *(True for _ in constants))
        shifts = (*_numbers(own), *(() for _ in constants))
        stages.append(StageVariant(general, counted, shifts))
    return StartsVariant(tuple(stages), _numbers(accesses))


def _numbers(accesses: Sequence[ArrayAccess]) -> tuple[tuple[int, ...], ...]:
    """Return for each access the numbers of the starts that offset it."""
    return tuple(tuple(shift.start for shift in access.shifts) for access in accesses)


def starts_record(starts: Starting, accesses: Sequence[ArrayAccess]) -> StartsRecord:
    """Return the record that the code of ``starts_variant(starts, accesses)`` reads."""
    stages = []
    for program, own in starts:
        _, constants = without_constants(program)
        stages.append(StageRecord([*(access.start for access in own), *constants], _shifts(own)))
    return StartsRecord(stages, _shifts(accesses))


def _shifts(accesses: Sequence[ArrayAccess]) -> Sequence[Any]:
    """Return the fields of a ShiftRecord for each shift of ``accesses``, as tuples of numbers."""
    return [(shift.limit, shift.stride) for access in accesses for shift in access.shifts]


def bind_loop(
    program: ScalarProgram,
    dims: Sequence[int],
    accesses: Sequence[ArrayAccess],
    arrays: tuple[NDArray, ...],
    starts: Starting = (),
    ranges: Sequence[Range] = (),
) -> Action:
    """Bind a loop that runs ``program`` at each index of ``dims``.

    ``accesses`` are those of the program's parameters and then of its results, all over ``dims``. The action keeps
    ``arrays``, which they access, alive. ``starts`` computes the run-time starts that offset accesses and limit the
    ``ranges`` of the loop's indices.
    """
    if 0 in dims:
        return NOTHING
    ranged = tuple((each.dimension, each.start) for each in ranges)
    # Plans are cached by what does not depend on addresses.
    tracks = tuple(ArrayAccess(0, each.strides, each.item, each.counts) for each in accesses)
    plan = _plan(program, tuple(dims), tracks, starts_variant(starts, accesses), ranged)
    firsts = [access.start for access in accesses]
    shifts = starts_record(starts, accesses)
    walked = [RangeRecord(each.limit, each.first, each.end) for each in ranges]
    record = LoopRecord(firsts, plan.sizes, plan.strides, shifts, walked)
    return native_call(plan.code, FUNCTION, record.to_array(), arrays)


@dataclass(frozen=True, slots=True)
class _LoopNest:
    """Loop nest without addresses, which is the same for all devices and for all layers of a model.

    ``sizes`` are those of the merged dimensions, outermost first. ``strides`` has a list for each array, in bytes.
    """

    code: NativeLibrary
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]


#: Largest number of cached plans. A program has a few hundred.
_MOST_PLANS = 4096


@lru_cache(_MOST_PLANS)
def _plan(
    program: ScalarProgram,
    dims: tuple[int, ...],
    tracks: tuple[ArrayAccess, ...],
    starts: StartsVariant,
    ranged: tuple[tuple[int | None, int], ...],
) -> _LoopNest:
    """Plan a loop nest. ``ranged`` lists dimensions with a limited range and the numbers of the limiting starts."""
    count = len(program.parameters)
    order = in_streaming_order(dims, tracks, count)
    strides = [[track.strides[d] for d in order] for track in tracks]
    alone = {order.index(d) for d, _ in ranged if d is not None}
    sizes, strides, positions = merged_apart([dims[d] for d in order], strides, alone)
    if not sizes:
        sizes, strides = [1], [[0]] * len(tracks)
    crossed = crossed_accesses(sizes, strides, tracks)
    steps = [
        InnerStride.PACKED if across or sizes == [1] else InnerStride.of(own[-1], track.item)
        for own, track, across in zip(strides, tracks, crossed, strict=True)
    ]
    apart = [
        own[-1]
        if step is InnerStride.STRIDED and 0 < own[-1] <= MOST_SIDE_BY_SIDE * track.item
        else 0
        for step, own, track in zip(steps, strides, tracks, strict=True)
    ]
    variant = LoopVariant(
        program,
        len(sizes),
        tuple(steps[:count]),
        tuple(steps[count:]),
        tuple(track.counts for track in tracks[:count]),
        starts,
        tuple(apart) if any(apart) else (),
        tuple(crossed) if any(crossed) else (),
        tuple((None if d is None else positions[order.index(d)], start) for d, start in ranged),
    )
    return _LoopNest(loop_code(variant), sizes, strides)


def crossed_accesses(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], accesses: Sequence[ArrayAccess]
) -> list[bool]:
    """Return for each array whether it is transposed tile by tile in the loop of merged dimensions ``sizes``.

    These arrays are contiguous along the second innermost dimension and strided along the innermost one, and both
    dimensions have at least LEAST_TILED indices. ``strides`` has a list for each of ``accesses``, in bytes.
    """
    if len(sizes) < 2 or min(sizes[-2:]) < LEAST_TILED:
        return [False] * len(accesses)
    return [
        not access.counts
        and access.item in TRANSPOSED_WIDTHS
        and own[-2] == access.item
        and own[-1] not in (0, access.item)
        for own, access in zip(strides, accesses, strict=True)
    ]


# ---- single elementwise operations


def bind_operation(
    signature: ElementSignature, operands: Sequence[NDArray], result: NDArray
) -> Action:
    """Bind the operation ``signature`` on arrays of the shape of ``result``."""
    every = (*operands, result)
    return bind_loop(one_operation(signature), result.shape, [*map(_access, every)], every)


def _access(array: NDArray) -> ArrayAccess:
    """Return the access to all elements of ``array``."""
    return ArrayAccess(array.ctypes.data, array.strides, array.itemsize)
