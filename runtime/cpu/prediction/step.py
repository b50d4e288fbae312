"""Prediction of a step: the sum over its thunks in execution order, with the state of the caches.

The time to begin the step and to return its outputs is added.

Each device has a core of its own; if there are more devices than cores, they take turns. If a device has several cores,
its threads share the pieces of large kernels, and one thread runs the rest. Steps follow one another, so the caches
hold the data that the previous step has left there. The first trip of a loop is predicted by itself, and the second one
stands for all others. A loop of unknown trip count counts as one trip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import runtime.cpu.prediction.convolutions
import runtime.cpu.prediction.epilogues
import runtime.cpu.prediction.loops
import runtime.cpu.prediction.phase_convolutions
import runtime.cpu.prediction.products
import runtime.cpu.prediction.rows
import runtime.cpu.prediction.sliced_products  # noqa: F401 - they fill the registry
from runtime.cpu.prediction.exchange import exchange_among, exchange_seconds
from runtime.cpu.prediction.moves import copy_work
from runtime.cpu.prediction.reuse_distance import Found, ReuseDistance, Span, span_of
from runtime.cpu.prediction.shares import pieces_of
from runtime.cpu.prediction.work import TIMED_BYTES, Access, NoAllocation, Work, work_of
from runtime.cpu.step.prepare import pieces_worth
from runtime.device_program import DeviceProgram
from runtime.program.thunks import (
    CollectiveStartThunk,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
)
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloModule, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: Arithmetic and memory time of a loop overlap: fraction of the shorter one that the longer one does not hide
#: (measured: 0.3 to 0.6 for loops and rows whose arrays are in a core's L2 cache).
NOT_HIDDEN = 0.5
#: Least fraction of an array whose access counts as touching all of it. Otherwise the array's distance does not change.
_FULL_FRACTION = 0.75


@dataclass(frozen=True, slots=True)
class PredictedThunk:
    """Prediction of a thunk that runs ``times`` times in a step.

    ``seconds`` is the time of all executions together, and ``compute`` and ``memory`` are its parts.
    """

    thunk: Thunk
    times: float
    seconds: float
    compute: float = 0.0
    memory: float = 0.0

    @property
    def kind(self) -> str:
        """Return the name of the kernel's or thunk's class without its suffix."""
        named = self.thunk.kernel if isinstance(self.thunk, KernelThunk) else self.thunk
        return type(named).__name__.removesuffix("Thunk").removesuffix("Kernel")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds of one step of one device, and of each thunk that computes, moves or exchanges data."""

    seconds: float
    thunks: tuple[PredictedThunk, ...]

    @property
    def by_kind(self) -> tuple[tuple[str, float], ...]:
        """Return the seconds of each kind of thunk, the largest first."""
        found: dict[str, float] = {}
        for one in self.thunks:
            found[one.kind] = found.get(one.kind, 0.0) + one.seconds
        return tuple(sorted(found.items(), key=lambda share: -share[1]))


def predicted_step(
    program: DeviceProgram, module: HloModule, machine: MachineDescription, cores: int
) -> Prediction:
    """Return the prediction for a program whose devices share ``cores`` cores.

    ``module`` is the program's module, which gives the trip counts of loops.
    """
    trips = {
        x.name: trip_count(x) or 1 for x in module.all_instructions() if x.opcode is Opcode.WHILE
    }
    predictor = StepPredictor(machine, program.num_devices, trips, cores // program.num_devices)
    predictor.of(program.thunks)
    thunks = predictor.of(program.thunks)
    turns = math.ceil(program.num_devices / cores)
    returned = program.num_devices * len(program.outputs) * machine.output_seconds
    seconds = machine.step_seconds + turns * sum(one.seconds for one in thunks) + returned
    return Prediction(seconds, tuple(thunks))


class StepPredictor:
    """Predictor of thunks, which must be given in execution order.

    ``trips`` gives the trip counts of loops by name. ``threads`` is the number of threads that share a device's
    kernels.
    """

    def __init__(
        self,
        machine: MachineDescription,
        devices: int,
        trips: Mapping[str, int],
        threads: int = 1,
    ) -> None:
        self.machine = machine
        self.devices = devices
        self.threads = max(threads, 1)
        self._trips = trips
        #: Seconds of the thunks since the last collective.
        self._since = 0.0
        self._reuse = ReuseDistance(
            machine.shared_levels[-2].size if len(machine.shared_levels) > 1 else 0
        )

    def of(self, thunk: Thunk) -> list[PredictedThunk]:
        """Predict one execution of ``thunk``, which may consist of several thunks."""
        if isinstance(thunk, WhileThunk):
            return self._loop(thunk)
        if isinstance(thunk, ConditionalThunk):
            branches = [self.of(branch) for branch in thunk.branches]
            return max(branches, key=_seconds)
        if isinstance(thunk, CollectiveStartThunk):
            return [self._collective(thunk)]
        work = self._work(thunk)
        if work is not None:
            found = self._shared(thunk, self._predicted(thunk, work), work)
            self._since += found.seconds
            return [found]
        return [one for inner in thunk.nested() for one in self.of(inner)]

    def _loop(self, loop: WhileThunk) -> list[PredictedThunk]:
        trips = self._trips.get(loop.name, 1)
        found = [*self.of(loop.condition)]
        if trips > 0:
            found += [*self.of(loop.body), *self.of(loop.condition)]
        if trips > 1:
            again = [*self.of(loop.body), *self.of(loop.condition)]
            found += [_repeated(one, trips - 1) for one in again]
        return found

    def _collective(self, thunk: CollectiveStartThunk) -> PredictedThunk:
        spans = [span_of(array) for array in (*thunk.operands, *thunk.results)]
        found = self._reuse.touch(spans, [True] * len(spans))
        timed_byte_seconds = self.machine.byte_seconds(TIMED_BYTES)
        farther = sum(
            part.size * max(self.machine.byte_seconds(part.distance) - timed_byte_seconds, 0.0)
            for parts in found
            for part in parts
        )
        seconds = exchange_seconds(thunk, self.machine, self.devices, farther)
        if self.devices > 1:
            # The spread of a sum of independent delays grows with the root of their number.
            seconds += self.machine.wait_seconds * math.sqrt(self._since / 1e-3)
        self._since = 0.0
        return PredictedThunk(thunk, 1.0, seconds, memory=farther)

    def _work(self, thunk: Thunk) -> Work | None:
        if isinstance(thunk, KernelThunk):
            return work_of(thunk, self.machine)
        return copy_work(thunk.source, thunk.target) if isinstance(thunk, CopyThunk) else None

    def _predicted(self, thunk: Thunk, work: Work) -> PredictedThunk:
        memory = self._memory(work)
        self._writes_for_itself(thunk, work)
        seconds = self.machine.thunk_seconds + self._kernel_seconds(work, memory)
        return PredictedThunk(thunk, 1.0, seconds, max(work.compute, work.divider), memory)

    def _kernel_seconds(self, work: Work, memory: float) -> float:
        begins = work.loops * self.machine.kernel_seconds + work.rows * self.machine.row_seconds
        if work.timed_bytes:
            return begins + work.compute + memory
        longer, shorter = max(work.compute, memory), min(work.compute, memory)
        return begins + max(longer + NOT_HIDDEN * shorter, work.divider)

    def _shared(self, thunk: Thunk, alone: PredictedThunk, work: Work) -> PredictedThunk:
        """Return the prediction if threads share the kernel: a free thread takes the next piece, the last is waited
        for.

        Reuse distances are those of one thread, because a piece has the same thread in every step if threads are
        equally fast.
        """
        if self.threads == 1 or not isinstance(thunk, KernelThunk):
            return alone
        pieces = pieces_of(thunk, pieces_worth(alone.seconds, self.threads))
        if len(pieces) == 1:
            return alone
        works = [work_of(piece, self.machine) for piece in pieces]
        each = alone.memory / max(sum(access.size for access in work.accesses), 1.0)
        memory = [each * sum(access.size for access in own.accesses) for own in works]
        seconds = [self._kernel_seconds(*own) for own in zip(works, memory, strict=True)]
        way = exchange_among(self.machine, self.threads)
        taken = self.machine.thunk_seconds + (way.latency if way is not None else 0.0)
        return replace(
            alone, seconds=taken + max(sum(seconds) / self.threads, *seconds), memory=sum(memory)
        )

    def _writes_for_itself(self, thunk: Thunk, work: Work) -> None:
        """Touch scratch and packed operands, which displace other data from the caches."""
        scratch = thunk.scratch if isinstance(thunk, KernelThunk) else ()
        spans = [span_of(array) for array in scratch]
        if work.packed:
            spans.append(Span(NoAllocation.PACKED, 0, int(work.packed)))
        self._reuse.touch(spans, [True] * len(spans))

    def _memory(self, work: Work) -> float:
        """Return the seconds of all accesses, less the cost of ``timed_bytes``, which ``compute`` includes."""
        accesses = work.accesses
        timed_byte_seconds = (
            self.machine.byte_seconds(work.timed_bytes) if work.timed_bytes else 0.0
        )
        spans = [span_of(access.array) for access in accesses]
        is_full_access = [is_full(a, span) for a, span in zip(accesses, spans, strict=True)]
        found = self._reuse.touch(spans, is_full_access)
        seconds = 0.0
        for access, parts in zip(accesses, found, strict=True):
            each = self._byte_seconds(parts, timed_byte_seconds)
            seconds += access.slowdown * access.size * each
            if access.again:
                each = max(self.machine.byte_seconds(access.size) - timed_byte_seconds, 0.0)
                seconds += access.slowdown * access.again * each
        return seconds

    def _byte_seconds(self, parts: Sequence[Found], timed_byte_seconds: float) -> float:
        size = sum(part.size for part in parts)
        if not size:
            return 0.0
        total = sum(part.size * self.machine.byte_seconds(part.distance) for part in parts)
        return max(total / size - timed_byte_seconds, 0.0)


def is_full(access: Access, span: Span) -> bool:
    """Return whether ``access`` touches so much of ``span`` that it counts as touching all of it."""
    return access.size >= _FULL_FRACTION * span.size


def _seconds(thunks: Sequence[PredictedThunk]) -> float:
    return sum(one.seconds for one in thunks)


def _repeated(one: PredictedThunk, times: float) -> PredictedThunk:
    return replace(
        one,
        times=one.times * times,
        seconds=one.seconds * times,
        compute=one.compute * times,
        memory=one.memory * times,
    )
