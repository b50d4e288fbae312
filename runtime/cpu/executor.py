"""Program on one device of the CPU back end: its memory, its bound thunks, and the execution of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectives.communicator.interface import BoundCollective, Communicator
from collectives.communicator.liveness.status_table import NO_THUNK, PROGRAM, STEP, THUNK
from collectives.communicator.native_collective import NativeCollective
from runtime.arrays.host_feed import HostChannel
from runtime.arrays.slots import DeviceArray, DeviceMemory, Slots, require_fit, require_world
from runtime.buffers.types import AllocationKind, ArrayView
from runtime.cpu.step.device_table import Table
from runtime.cpu.step.prepare import Cutting, pieces_worth, prepare_sequence
from runtime.cpu.step.segment import ProgressPoints, SegmentRow
from runtime.cpu.step.thread_team import ThreadTeam
from runtime.cpu.step.worker import Worker
from runtime.device_program import DeviceProgram
from runtime.program.kernel import CPU_KERNELS, KernelLibrary
from runtime.program.thunks import Thunk, traverse
from spmd.literal import NDArray

if TYPE_CHECKING:
    from runtime.cpu.prediction.step import StepPredictor
    from runtime.cpu.step.recorder import Recorder


class LoadedDevice:
    """A program that is loaded on one device and can run any number of steps. It is not thread-safe."""

    #: Library that binds kernels to the device's memory.
    kernels: ClassVar[KernelLibrary] = CPU_KERNELS

    def __init__(
        self,
        program: DeviceProgram,
        communicator: Communicator,
        *,
        record: bool = False,
        reference_every: int = 0,
        explain: Callable[[int], str] = "thunk {}".format,
    ) -> None:
        """Load the program. All ranks must load it at the same time.

        record: whether ``recorder`` records the begin and end times of thunks.
        reference_every: if it is n > 0, every n-th step is *blocking*: it waits for each collective at its start, so
        that nothing overlaps, and is a reference for the other steps. 0: no step is blocking.
        explain: returns a description of thunk n, in the order of ``traverse``, for messages about this device's
        position.
        Raises RunError if the number of ranks is not the program's number of devices.
        """
        require_world(program, communicator.size)
        self.program = program
        self.communicator = communicator
        self.recorder = _recorder(program.thunks) if record else None
        self._reference_every = reference_every
        #: Flag of blocking steps, which native code reads; None if no step is blocking.
        self.blocking = np.zeros((), np.bool_) if reference_every else None
        self.explain = explain
        #: Position of the device in its program, into which each row writes the number of its thunk.
        self.position = communicator.position
        self._names = [thunk.name for thunk in traverse(program.thunks)]
        self._numbers = {id(thunk): number for number, thunk in enumerate(traverse(program.thunks))}
        self._number = communicator.register_program(self)
        self._steps = 0
        #: Points at which the device polls collectives in flight.
        self.progress = ProgressPoints(overlaps=reference_every != 1)
        self._seconds: dict[int, float] = {}  # predicted seconds by the number of the thunk
        #: Bound collectives by the name of their start thunk. If a computation is called several times, the entry is of
        #: the call loaded last: thunks are loaded in schedule order, so a done thunk waits for this one.
        self.bound_collectives: dict[str, BoundCollective] = {}
        self.memory = DeviceMemory(program.assignment.allocations, communicator)
        self._fill_constants()
        self._slots = Slots(program, self.memory)
        #: Slots of the outputs; each holds the output array of the last step.
        self.results = self._slots.results
        self._segment = prepare_sequence(program.thunks, self)
        communicator.connect()

    @property
    def num_partitions(self) -> int:
        """Return the number of partitions of the program."""
        return self.program.num_partitions

    @property
    def host(self) -> HostChannel:
        """Return the channel to the host: the feeds of the present run, and Python functions."""
        return self.program.host

    def number_of(self, thunk: Thunk) -> int:
        """Return the number of ``thunk`` in the order of ``traverse``."""
        return self._numbers[id(thunk)]

    def name_of(self, thunk: int) -> str:
        """Return the name of the thunk with number ``thunk``."""
        return self._names[thunk]

    def array(self, view: ArrayView) -> NDArray:
        """Return the array that ``view`` refers to in this device's memory."""
        return self.memory.array(view)

    def seconds_of(self, thunk: Thunk) -> float:
        """Return the predicted seconds of ``thunk`` on one thread. First calls must be in the order of execution."""
        number = self.number_of(thunk)
        if number not in self._seconds:
            self._seconds[number] = sum(one.seconds for one in self._predictor.of(thunk))
        return self._seconds[number]

    def cutting_of(self, thunk: Thunk) -> Cutting:
        """Return into how many pieces the kernel of ``thunk`` is cut. Calls must be in the order of execution."""
        cores = self.communicator.cores
        if cores == 1 and not self.progress.are_needed:
            return Cutting()
        seconds = self.seconds_of(thunk)
        shared = pieces_worth(seconds, cores) if cores > 1 else 1
        return Cutting(cores, shared, self.progress.pieces(seconds))

    @cached_property
    def _predictor(self) -> StepPredictor:
        # The imports are deferred because only devices that cut kernels predict times, and few do.
        from runtime.cpu.prediction.step import StepPredictor
        from spmd.machine.named import machine_named

        return StepPredictor(machine_named(), self.program.num_devices, {})

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """Return a new array for parameter leaf ``number``, which ``fill`` writes.

        The array occupies the parameter's slot if that is free, otherwise newly allocated memory.
        """
        return self._slots.put(number, fill)

    def step(self, arrays: Sequence[DeviceArray]) -> None:
        """Run one step on this device's tiles, one array per parameter leaf.

        Donated arrays are consumed, and the others are unchanged. Before it writes any memory, the step raises RunError
        if an array does not fit its parameter, and DonatedError if an array has been consumed by an earlier step.
        """
        self.begin(arrays)
        self._run_thunks()
        self.end()

    def begin(self, arrays: Sequence[DeviceArray]) -> None:
        """Prepare a step: check its arguments, and copy them to their parameters' slots unless they are there already.

        It must be called before each run of ``table``. Raises the errors of ``step``.
        """
        if not self._slots.hold(arrays):
            require_fit(self.program, arrays, self.communicator.rank)
            self._slots.bring(arrays)
        self._slots.consume(arrays)
        self._steps += 1
        is_blocking = self.blocking is not None and self._steps % self._reference_every == 0
        if self.blocking is not None:
            self.blocking[...] = is_blocking
        if self.recorder is not None:
            self.recorder.begin_step(self._steps, is_blocking)
        self.position[PROGRAM], self.position[STEP] = self._number, self._steps

    def end(self) -> None:
        """Finish a step: create the arrays of its outputs. It must be called after each run of ``table``."""
        self.position[THUNK] = NO_THUNK
        self._slots.hand_out()

    @property
    def outputs(self) -> tuple[DeviceArray, ...]:
        """Return the outputs of the last successful step. They are valid until the next step starts."""
        return tuple([result.array for result in self.results])

    @property
    def is_native(self) -> bool:
        """Return whether native code alone runs a step unless a collective fails."""
        return self._segment.is_native

    @cached_property
    def table(self) -> Table:
        """Return the table of the step's rows, which native code runs.

        All devices must have been loaded before the first access.
        """
        log = 0 if self.recorder is None else self.recorder.address
        return Table(self._segment, self.position, self.communicator.rank, log)

    @cached_property
    def _run_thunks(self) -> Callable[[], None]:
        """Return the function that runs the table, with helper threads if kernels are shared among cores."""
        worker = Worker([self.table], _wait_alone, self.communicator.spins)
        team = ThreadTeam([worker], _fail_alone, self.communicator.cores)
        return team.run if team.has_helpers else worker.run

    def link(self) -> None:
        """Wait until the machine code of a step is compiled and linked, for which otherwise the first step would wait.

        All devices must have been loaded before.
        """
        _ = self._run_thunks

    def run(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run one step on NumPy arrays and return copies of its outputs."""
        self.step([DeviceArray(a) for a in arrays])
        return [np.asarray(array) for array in self.outputs]

    def _fill_constants(self) -> None:
        for allocation in self.program.assignment.of_kind(AllocationKind.CONSTANT):
            data = np.ascontiguousarray(self.program.constants[allocation.index])
            self.memory.bytes_of(allocation)[:] = data.reshape(-1).view(np.uint8)


def _recorder(thunks: Thunk) -> Recorder:
    from runtime.cpu.step.recorder import Recorder

    return Recorder(thunks)


def _fail_alone(_worker: Worker, _error: BaseException) -> None:
    """Do nothing. The team has one device, and helpers wait for no device, so no wait must be ended."""


def _wait_alone(_rank: int, row: SegmentRow) -> bool:
    """Block until the collective of ``row`` can continue, and return True. It is a WaitHandler of a single device."""
    assert isinstance(row.target, NativeCollective)
    row.target.wait_long()
    return True
