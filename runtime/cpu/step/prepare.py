"""Binding of thunks to a device's memory: one rule for each class of thunks.

A bound thunk can be executed any number of times. It is either a ``Segment``, whose rows native code runs, or an
``Action``, a Python callable that becomes one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np

from collectives.communicator.interface import BoundCollective
from collectives.communicator.native_collective import NativeCollective
from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.native_call import name_code
from runtime.cpu.step.segment import (
    Action,
    PythonWait,
    Segment,
    SegmentRow,
    either,
    joined,
    recording,
    segment_of,
)
from runtime.program.kernel import Kernel, KernelArrays
from runtime.program.records.copy import CopyKernel
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    PartitionIdThunk,
    ReplicaIdThunk,
    Thunk,
    ThunkSequence,
    WhileThunk,
)
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.registry import Registry

if TYPE_CHECKING:
    from runtime.cpu.executor import LoadedDevice

Rule: TypeAlias = "Callable[[Thunk, LoadedDevice], Action | Segment]"
#: Binding rules by the name of the thunk's class.
RULES: Registry[str, Rule] = Registry("CPU rule")
RULES.import_at_need(
    {"runtime.cpu.step.prepare_host": ("CallbackThunk", "InfeedThunk", "OutfeedThunk")}
)

T = TypeVar("T", bound=Thunk)
R = TypeVar("R", bound=Action | Segment)


def prepares(
    kind: type[T],
) -> Callable[[Callable[[T, LoadedDevice], R]], Callable[[T, LoadedDevice], R]]:
    """Return a decorator that registers a function as the rule for thunks of class ``kind``."""

    def decorator(rule: Callable[[T, LoadedDevice], R]) -> Callable[[T, LoadedDevice], R]:
        RULES.add(kind.__name__, cast("Rule", rule))
        return rule

    return decorator


def prepare(thunk: Thunk, program: LoadedDevice) -> Action | Segment:
    """Bind ``thunk`` to the memory of ``program``'s device. Raises TypeError if its class has no rule."""
    rule = RULES.get(type(thunk).__name__)
    if rule is None:
        raise TypeError(f"no rule says what a processor does for a {type(thunk).__name__}")
    return rule(thunk, program)


# ---- the number of pieces into which a kernel is cut

#: Shortest piece that pays for another thread. Taking a piece costs a microsecond, its data may be in the cache of
#: another core, and the device's thread waits for the last piece.
LEAST_SECONDS = 15e-6

#: Largest number of pieces per thread. With more than one, a faster thread can take more pieces than a slower one.
PIECES_PER_THREAD = 2


@dataclass(frozen=True, slots=True)
class Cutting:
    """Limits on the number of pieces into which a kernel is cut.

    ``threads`` threads compute up to ``shared`` pieces concurrently. Otherwise one thread computes up to ``in_turn``
    pieces and polls collectives between them.
    """

    threads: int = 1
    shared: int = 1
    in_turn: int = 1

    @property
    def is_uncut(self) -> bool:
        """Return whether the kernel stays in one piece."""
        return self.shared == self.in_turn == 1


def pieces_worth(seconds: float, threads: int) -> int:
    """Return into how many pieces (>= 1) a kernel that takes one thread ``seconds`` is cut for ``threads`` threads."""
    return max(1, min(PIECES_PER_THREAD * threads, int(seconds / LEAST_SECONDS)))


# ---- sequences and control flow


@prepares(ThunkSequence)
def prepare_sequence(thunk: ThunkSequence, program: LoadedDevice) -> Segment:
    return joined(_stamped(thunk, _segments(thunk, program), program))


def _segments(sequence: ThunkSequence, program: LoadedDevice) -> Iterator[Segment]:
    """Yield the segments of the thunks of ``sequence``, with names for errors, timestamps and blocking waits."""
    for thunk in sequence.thunks:
        number = program.number_of(thunk)
        own = segment_of(number, prepare(thunk, program))
        if not isinstance(thunk, ThunkSequence):  # a sequence records its timestamps itself
            own = joined(_stamped(thunk, [own], program))
        within = f"{thunk.name} in {sequence.name}"
        yield own.inside(within)
        if isinstance(thunk, CollectiveStartThunk) and program.blocking is not None:
            yield _wait_if_blocking(thunk, program, program.blocking).inside(within)


def _stamped(thunk: Thunk, segments: Iterable[Segment], program: LoadedDevice) -> Iterator[Segment]:
    """Yield ``segments``, which execute ``thunk``, and around them timestamps if a timeline is recorded."""
    recorder, number = program.recorder, program.number_of(thunk)
    if recorder is not None and thunk.is_composite:
        yield recording(number, recorder.begins(thunk))
    yield from segments
    if recorder is not None:
        yield recording(number, recorder.ends(thunk))


@prepares(WhileThunk)
def prepare_while(thunk: WhileThunk, program: LoadedDevice) -> Segment:
    """Return the rows of a loop.

    The rows are the condition, a jump behind the loop unless the predicate holds, the body, a poll of collectives, and
    a jump back to the condition.
    """
    predicate = program.array(thunk.predicate)
    number, address = program.number_of(thunk), predicate.ctypes.data
    progress = program.progress
    condition = prepare_sequence(thunk.condition, program)
    over = progress.since  # the rows after the loop follow the condition
    body = prepare_sequence(thunk.body, program)
    look = progress.look(number) if progress.are_needed else Segment()
    progress.since = over
    trip = (*body.rows, *look.rows)
    leave = SegmentRow.unless(number, address, len(trip) + 2)
    again = SegmentRow.jump(number, -len(condition.rows) - 1 - len(trip))
    rows = (*condition.rows, leave, *trip, again)
    return Segment(rows, (*condition.alive, *body.alive, predicate))


@prepares(ConditionalThunk)
def prepare_conditional(thunk: ConditionalThunk, program: LoadedDevice) -> Segment:
    """Return the rows of a conditional.

    Each branch except the last consists of a jump behind the branch unless the selector chooses it, the rows of the
    branch, and a jump behind the last branch.
    """
    progress, begins = program.progress, program.progress.since
    branches, ends = [], []
    for branch in thunk.branches:
        progress.since = begins
        branches.append(prepare_sequence(branch, program))
        ends.append(progress.since)
    progress.since = max(ends)
    selector = program.array(thunk.selector)
    number, address = program.number_of(thunk), selector.ctypes.data
    rows = list(branches[-1].rows)
    for value in reversed(range(len(branches) - 1)):
        own = branches[value].rows
        if selector.dtype == bool:
            choose = SegmentRow.unless(number, address, len(own) + 2)
        else:
            choose = SegmentRow.unless_equal(number, address, value, len(own) + 2)
        rows = [choose, *own, SegmentRow.jump(number, len(rows) + 1), *rows]
    alive = tuple(one for branch in branches for one in branch.alive)
    return Segment(tuple(rows), (*alive, selector))


# ---- kernels and copies


@prepares(KernelThunk)
def prepare_kernel(thunk: KernelThunk, program: LoadedDevice) -> Action | Segment:
    arrays = KernelArrays(
        tuple(map(program.array, thunk.operands)),
        tuple(map(program.array, thunk.results)),
        tuple(map(program.array, thunk.scratch)),
    )
    return _bound_kernel(thunk, program, thunk.kernel, arrays)


@prepares(CopyThunk)
def prepare_copy(thunk: CopyThunk, program: LoadedDevice) -> Action | Segment:
    arrays = KernelArrays((program.array(thunk.source),), (program.array(thunk.target),))
    return _bound_kernel(thunk, program, CopyKernel(), arrays)


def _bound_kernel(
    thunk: Thunk, program: LoadedDevice, kernel: Kernel, arrays: KernelArrays
) -> Action | Segment:
    """Bind ``kernel``, cut into pieces for several threads or for polling collectives in flight.

    In blocking steps, in which no collective is in flight during the kernel, it is not cut for polling.
    """
    cutting = program.cutting_of(thunk)
    action = _bound(program, kernel, arrays, cutting)
    name_code(action, thunk.name)
    if not program.progress.are_needed:
        return action
    number = program.number_of(thunk)
    own = program.progress.around(number, program.seconds_of(thunk), segment_of(number, action))
    if program.blocking is None or cutting.in_turn == 1:
        return own
    uncut = _bound(program, kernel, arrays, replace(cutting, in_turn=1))
    return either(number, program.blocking, segment_of(number, uncut), own)


def _bound(program: LoadedDevice, kernel: Kernel, arrays: KernelArrays, cutting: Cutting) -> Action:
    if cutting.is_uncut:
        return program.kernels.bind(kernel, arrays)
    from runtime.cpu.sharing.cut_kernels import bind_shared  # at need: few devices have spare cores

    return bind_shared(program.kernels, kernel, arrays, cutting)


@prepares(PartitionIdThunk)
def prepare_partition_id(thunk: PartitionIdThunk, program: LoadedDevice) -> Action:
    return _filling(program, thunk.result, program.communicator.rank % program.num_partitions)


@prepares(ReplicaIdThunk)
def prepare_replica_id(thunk: ReplicaIdThunk, program: LoadedDevice) -> Action:
    return _filling(program, thunk.result, program.communicator.rank // program.num_partitions)


def _filling(program: LoadedDevice, result: ArrayView, number: int) -> Action:
    """Return the action that stores ``number`` in the scalar ``result``."""
    array = program.array(result)
    return copying(np.array(number, array.dtype), array)


# ---- collectives


@prepares(CollectiveStartThunk)
def prepare_collective_start(
    thunk: CollectiveStartThunk, program: LoadedDevice
) -> Action | Segment:
    communicator = program.communicator
    bound = communicator.bind(
        thunk.op.of_rank(communicator.rank),
        thunk.name,
        [program.array(view) for view in thunk.operands],
        [program.array(view) for view in thunk.results],
    )
    program.bound_collectives[thunk.name] = bound
    if not isinstance(bound, NativeCollective):
        return bound.start
    if bound.needs_progress:
        program.progress.start(thunk.name)
    return Segment((SegmentRow.start(program.number_of(thunk), bound),))


@prepares(CollectiveDoneThunk)
def prepare_collective_done(thunk: CollectiveDoneThunk, program: LoadedDevice) -> Segment:
    program.progress.finish(thunk.start)
    return _wait_for(program.bound_collectives[thunk.start], thunk, program)


def _wait_if_blocking(
    start: CollectiveStartThunk, program: LoadedDevice, blocking: NDArray
) -> Segment:
    """Return rows that wait for the collective right after ``start``, in steps in which ``blocking`` is true."""
    number = program.number_of(start)
    wait = _wait_for(program.bound_collectives[start.name], start, program)
    if program.recorder is not None:
        wait = joined((wait, recording(number, program.recorder.waited(start))))
    return either(number, blocking, wait, Segment())


def _wait_for(bound: BoundCollective, thunk: Thunk, program: LoadedDevice) -> Segment:
    """Return rows of ``thunk`` that wait for ``bound``. They may run more than once for one start."""
    number = program.number_of(thunk)
    if not isinstance(bound, NativeCollective):
        return segment_of(number, PythonWait(bound))
    wait = Segment((SegmentRow.wait(number, bound),))
    if program.recorder is None:
        return wait
    course = program.recorder.course(thunk, bound)
    return joined((wait, *(recording(number, event) for event in course)))
