"""Program loaded on one GPU; the counterpart of LoadedDevice (runtime/cpu/executor.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collectives.communicator.interface import Communicator
from collectives.communicator.liveness.status_table import NO_THUNK, PROGRAM, STEP, THUNK
from runtime.arrays.slots import DeviceArray, Slots, require_fit, require_world
from runtime.device_program import DeviceProgram
from runtime.gpu import commands as _commands  # noqa: F401 - fills the table of rules
from runtime.gpu.arena import DeviceArena
from runtime.gpu.binding import Binding
from runtime.gpu.collective import GpuCommunicator
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.driver import GpuDriver, multiplies_f8
from runtime.gpu.failures import failures_of
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import MakePtx, Planner, no_ptx
from runtime.gpu.recorder import GpuRecorder
from runtime.gpu.report import KernelReport
from runtime.gpu.tile import DeviceTile
from runtime.gpu.transfers.staging import Staging
from runtime.program.kernel import KernelLibrary
from runtime.program.thunks import traverse
from runtime.timeline.events import Stream
from spmd.literal import NDArray


class LoadedGpuDevice:
    """Program on one GPU that can run any number of times. Not thread-safe: one thread runs it.

    A step ends when the device has completed it. A step allocates nothing unless the caller holds an output that it
    overwrites, which is then copied to its own allocation.
    """

    def __init__(
        self,
        program: DeviceProgram,
        communicator: Communicator,
        driver: GpuDriver,
        host_kernels: KernelLibrary,
        *,
        collectives: GpuCommunicator | None = None,
        make_ptx: MakePtx = no_ptx,
        options: GpuOptions = DEFAULT,
        record: bool = False,
        reference_every: int = 0,
        explain: Callable[[int], str] = "thunk {}".format,
    ) -> None:
        """Load the program. Every rank loads at the same time. Raises RunError if the world's size differs from it.

        collectives: between GPUs; without them collectives go through the hosts' ``communicator``.
        record, reference_every: as in ``LoadedDevice``. They disable graphs, inside of which events give no times.
        explain: returns the text for thunk number n, for messages of waiting ranks.
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
        arena = DeviceArena(program, communicator.rank, driver, staging)
        arena.fill_constants(program)
        self._slots: Slots[DeviceTile] = Slots(program, arena)
        #: The outputs' slots, each of which has the last step's array.
        self.results = self._slots.results
        self.recorder = GpuRecorder(program.thunks, driver, self._streams) if record else None
        if record:
            options = replace(options, graphs=False)
        options = replace(options, f8=options.f8 and multiplies_f8(driver.arch))
        planner = Planner(
            communicator.rank,
            program.num_partitions,
            make_ptx,
            collectives=collectives,
            options=options,
            has_blocking_steps=bool(reference_every),
            multiprocessors=driver.multiprocessors,
        )
        #: The GPU's work, as plain data.
        self.plan = plan_commands(program.thunks, planner)
        self._binding = Binding(
            driver,
            arena,
            self._streams,
            communicator,
            collectives,
            host_kernels,
            program.host,
            ranges=options.ranges,
            numbers={id(thunk): number for number, thunk in enumerate(traverse(program.thunks))},
            around=None if self.recorder is None else self.recorder.around,
        )
        self._run = bound(self.plan, self._binding)
        communicator.connect()
        if collectives is not None:
            collectives.connect()

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """Return an array for parameter leaf ``number``, written by ``fill``, in the parameter's slot if free."""
        self._driver.use()
        with failures_of(self._driver, f"argument {number} of {self.program.name}"):
            return self._slots.put(number, fill)

    def step(self, arrays: Sequence[DeviceArray]) -> None:
        """Run one step on this device's tiles. Donated ones are consumed, the others stay unchanged.

        Raises RunError for arrays that do not fit and DonatedError for a consumed one; then no memory has been changed.
        """
        self._driver.use()
        with failures_of(self._driver, self.program.name):
            self.begin(arrays)
            self.run_steps()
            self.end()

    def begin(self, arrays: Sequence[DeviceArray]) -> None:
        """Prepare a step: check and place its arguments."""
        if not self._slots.hold(arrays):
            require_fit(self.program, arrays, self.communicator.rank)
            self._slots.bring(arrays)
        self._slots.consume(arrays)
        self._steps += 1
        every = self._reference_every
        is_blocking = self._binding.is_blocking = bool(every) and self._steps % every == 0
        if self.recorder is not None:
            self.recorder.begin_step(self._steps, is_blocking)
        self.position[PROGRAM], self.position[STEP] = self._number, self._steps

    def run_steps(self) -> None:
        """Enqueue the step's work, and wait until it is complete."""
        self._run()
        for stream in self._streams.values():
            self._binding.wait(stream)
        if self.recorder is not None:
            self.recorder.end_step()

    def seconds_in_a_row(self, times: int) -> float:
        """Return the GPU's seconds per step for ``times`` consecutive steps without waits of the host.

        They work on the state of the last step, so outputs are invalid afterwards; there must have been a step.
        """
        self._driver.use()
        compute = self._streams[Stream.COMPUTE]
        begin, end = self._driver.event(timed=True), self._driver.event(timed=True)
        compute.record(begin)
        for _ in range(times):
            self._run()
        compute.record(end)
        for stream in self._streams.values():
            self._binding.wait(stream)
        return 1e-9 * self._driver.nanoseconds(begin, end) / times

    def end(self) -> None:
        """Finish a step: hand out its outputs."""
        self.position[THUNK] = NO_THUNK
        self._slots.hand_out()

    @property
    def outputs(self) -> tuple[DeviceArray, ...]:
        """Outputs of the last successful step. They stay valid until the next step starts."""
        return tuple([slot.array for slot in self.results])

    def use_graphs(self, wanted: bool) -> None:
        """Select whether the next steps launch the plan's graphs, or run their commands one by one, to compare both."""
        self._binding.uses_graphs = wanted

    def name_of(self, thunk: int) -> str:
        return self._names[thunk]

    @property
    def kernel_report(self) -> KernelReport:
        """The report on the program's kernels."""
        return KernelReport.of(self.plan)
