"""Program loaded on one GPU. It is the counterpart of ``LoadedDevice`` (runtime/cpu/executor.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collectives.communicator.interface import Communicator
from collectives.communicator.liveness.status_table import NO_THUNK, PROGRAM, STEP, THUNK
from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.arrays.slots import DeviceArray, Slots, require_fit, require_world
from runtime.device_program import DeviceProgram
from runtime.gpu import commands as _commands  # noqa: F401 - fills the table of rules
from runtime.gpu.arena import DeviceArena
from runtime.gpu.command import GpuProgram
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.driver import GpuDriver, multiplies_f8
from runtime.gpu.failures import failures_of
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import MakeLaunches, Planner
from runtime.gpu.recorder import GpuRecorder
from runtime.gpu.report import KernelReport
from runtime.gpu.tile import DeviceTile
from runtime.gpu.transfers.staging import Staging
from runtime.program.thunks import traverse
from runtime.timeline.events import Stream
from spmd.literal import NDArray


class LoadedGpuDevice:
    """Program on one GPU that can run any number of times. Not thread-safe: one thread runs it.

    A step returns when the device has completed it. A step allocates device memory only if the caller still holds an
    output of an earlier step that the step overwrites; that output is first copied to its own allocation.
    """

    def __init__(
        self,
        program: DeviceProgram,
        communicator: Communicator,
        driver: GpuDriver,
        *,
        make_launches: MakeLaunches,
        collectives: NcclCommunicator | None = None,
        options: GpuOptions = DEFAULT,
        record: bool = False,
        reference_every: int = 0,
        explain: Callable[[int], str] = "thunk {}".format,
    ) -> None:
        """Load the program. All ranks must load it at the same time.

        driver: the GPU.
        collectives: communicator between GPUs; None: collectives go through the hosts' ``communicator``.
        make_launches: compiler of kernels to PTX.
        record: record thunk timestamps, which disables CUDA graphs, since events inside a graph give no times.
        reference_every: n makes every n-th step wait for each collective at its start; 0: no step does.
        explain: returns a description of thunk number n for the messages of ranks that wait for this one.

        Raises RunError if the communicator does not have one rank for each device of the program, and GpuMemoryError
        if device memory is insufficient.
        """
        require_world(program, communicator.size)
        driver.use()
        self.program, self.communicator, self.explain = program, communicator, explain
        self.position = communicator.position
        self._number = communicator.register_program(self)
        self._names = [thunk.name for thunk in traverse(program.thunks)]
        self._steps, self._reference_every = 0, reference_every
        self._driver = driver
        self._streams = {
            Stream.COMPUTE: driver.stream(),
            Stream.COMMUNICATION: driver.stream(urgent=True),
        }
        staging = Staging(driver, self._streams[Stream.COMPUTE])
        allocator = None if collectives is None else collectives.allocate
        arena = DeviceArena(program, communicator.rank, driver, staging, allocator)
        arena.fill_constants(program)
        self._slots: Slots[DeviceTile] = Slots(program, arena)
        #: Array slots of the outputs. Each holds the array of the last step.
        self.results = self._slots.results
        self.recorder = GpuRecorder(program.thunks, driver, self._streams) if record else None
        if record:
            options = replace(options, graphs=False)
        options = replace(options, f8=options.f8 and multiplies_f8(driver.arch))
        planner = Planner(
            communicator.rank,
            program.num_partitions,
            make_launches,
            collectives=collectives,
            options=options,
            has_blocking_steps=bool(reference_every),
            multiprocessors=driver.multiprocessors,
        )
        #: Commands of the program, before they are bound to addresses.
        self.plan = plan_commands(program.thunks, planner)
        self._gpu = GpuProgram(
            driver,
            arena,
            self._streams,
            communicator,
            collectives,
            program.host,
            ranges=options.ranges,
            numbers={id(thunk): number for number, thunk in enumerate(traverse(program.thunks))},
            around=None if self.recorder is None else self.recorder.around,
        )
        self._run = bound(self.plan, self._gpu)
        communicator.connect()
        if collectives is not None:
            collectives.connect()

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """Return a new array for parameter leaf ``number``, whose elements ``fill`` writes.

        The array occupies the parameter's slot if that is free, otherwise its own allocation. Raises GpuFailedError if
        the device fails.
        """
        self._driver.use()
        with failures_of(self._driver, f"argument {number} of {self.program.name}"):
            return self._slots.put(number, fill)

    def step(self, arrays: Sequence[DeviceArray]) -> None:
        """Run one step on this device's tile of each argument. Donated arrays are consumed, others stay unchanged.

        Raises RunError if an array does not fit its parameter, and DonatedError if an array has been consumed before;
        in both cases no memory has changed. Raises GpuFailedError if work on the device fails.
        """
        self._driver.use()
        with failures_of(self._driver, self.program.name):
            self.begin(arrays)
            self.run_steps()
            self.end()

    def begin(self, arrays: Sequence[DeviceArray]) -> None:
        """Prepare a step: check the arguments, copy them to their slots if they are elsewhere, and publish the step."""
        if not self._slots.hold(arrays):
            require_fit(self.program, arrays, self.communicator.rank)
            self._slots.bring(arrays)
        self._slots.consume(arrays)
        self._steps += 1
        every = self._reference_every
        is_blocking = self._gpu.is_blocking = bool(every) and self._steps % every == 0
        if self.recorder is not None:
            self.recorder.begin_step(self._steps, is_blocking)
        self.position[PROGRAM], self.position[STEP] = self._number, self._steps

    def run_steps(self) -> None:
        """Run the commands of the step, and wait until both streams have completed."""
        self._run()
        for stream in self._streams.values():
            self._gpu.wait(stream)
        if self.recorder is not None:
            self.recorder.end_step()

    def seconds_in_a_row(self, times: int) -> float:
        """Run ``times`` consecutive steps without a wait between them, and return the GPU time per step in seconds.

        There must have been a step before. The steps read and overwrite its arrays, so its outputs become invalid.
        """
        self._driver.use()
        compute = self._streams[Stream.COMPUTE]
        begin, end = self._driver.event(timed=True), self._driver.event(timed=True)
        compute.record(begin)
        for _ in range(times):
            self._run()
        compute.record(end)
        for stream in self._streams.values():
            self._gpu.wait(stream)
        return 1e-9 * self._driver.nanoseconds(begin, end) / times

    def end(self) -> None:
        """Finish a step: create the output arrays and report that no thunk is running."""
        self.position[THUNK] = NO_THUNK
        self._slots.hand_out()

    @property
    def outputs(self) -> tuple[DeviceArray, ...]:
        """Outputs of the last successful step. They stay valid until the next step starts."""
        return tuple([slot.array for slot in self.results])

    def use_graphs(self, wanted: bool) -> None:
        """Select whether the next steps launch CUDA graphs, or run the commands of the graphs one by one."""
        self._gpu.uses_graphs = wanted

    def name_of(self, thunk: int) -> str:
        """Return the name of thunk number ``thunk``."""
        return self._names[thunk]

    @property
    def kernel_report(self) -> KernelReport:
        """Counts of the program's kernels by implementation."""
        return KernelReport.of(self.plan)
