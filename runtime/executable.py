"""Executable: a compiled program. It runs on devices of this process or as one rank of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from collectives.communicator.interface import Communicator
from runtime.arrays.host_feed import Given, HostFeeds, Infeed, Outfeed, joined
from runtime.arrays.sharded_arrays import (
    ArraySpec,
    ShardedArrays,
    bounded_dimensions,
    copy_shard,
    copy_tile,
    cut_to_sizes,
    num_results,
)
from runtime.arrays.sharded_arrays import gather as gather_tiles
from runtime.arrays.slots import DeviceArray
from runtime.buffers.types import AllocationKind, MemoryStats
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.libraries.blas import set_blas_threads
from runtime.cpu.loopback import LoopbackDevices
from runtime.device_program import DeviceProgram, ScheduledModule
from runtime.interpreter import settings_for_compiling
from runtime.program.thunks import KernelThunk, traverse
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape, leaves

if TYPE_CHECKING:
    from collectives.schedule.scheduled_overlap import ScheduledOverlap
    from runtime.local_devices import Engine, KernelReport, LocalDevices, RunningDevice
    from runtime.timeline.timestamps import RecordedStep
    from spmd.hlo import HloModule

Gather = Literal["first", "all"]
"""Processes that receive global results: that of device 0, or all. One that holds all devices always receives them."""


@dataclass
class Executable:
    """Program for ``num_devices`` devices. ``source`` is the scheduled module that it was compiled from.

    ``inputs`` and ``outputs`` give the global shape and sharding of each array (outputs: the module's ``results``, then
    sizes).
    ``timeout_seconds``: how long a device waits for the others.
    ``record``: devices that are loaded from now on record when their thunks begin and end.
    ``reference_every``: in every n-th step, devices wait for each collective at its start; 0: never.
    ``overlap``: what the latency-hiding scheduler expects of the collectives; None if it did not run.
    ``engine``: the engine that runs the program; None: the processor's cores.
    ``while_loading``: called once, when the program is loaded here, while other threads make machine code.
    """

    source: ScheduledModule
    program: DeviceProgram
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    compile_seconds: dict[str, float] = field(default_factory=dict)
    timeout_seconds: float = 300.0
    record: bool = False
    reference_every: int = 0
    overlap: ScheduledOverlap | None = None
    engine: Engine | None = None
    while_loading: Callable[[], object] | None = None
    _loaded: LocalDevices | None = None

    @property
    def module(self) -> HloModule:
        """The scheduled module. Raises SpmdError where a saved one, which is read now, is not sound."""
        return self.source.module

    @property
    def aliases(self) -> dict[int, int]:
        """Output number -> number of the input that it aliases, whose place it takes."""
        return self.source.aliases

    @property
    def num_devices(self) -> int:
        return self.program.num_devices

    @property
    def results(self) -> tuple[ArraySpec, ...]:
        """The outputs that are the module's results; the sizes of bounded dynamic ones follow them."""
        return self.outputs[: num_results([one.shape for one in self.outputs])]

    @property
    def stats(self) -> MemoryStats:
        """The memory of one device, in bytes."""
        return self.program.assignment.stats

    @property
    def kernel_count(self) -> int:
        """The number of kernel calls in the program, each counted once however often a loop runs it."""
        return sum(isinstance(thunk, KernelThunk) for thunk in traverse(self.program.thunks))

    @property
    def donated(self) -> tuple[int, ...]:
        """The inputs that a step consumes because an output is written into their memory."""
        allocations = self.program.assignment.allocations
        homes = {allocations[output.slice.allocation] for output in self.program.outputs}
        return tuple(sorted(a.number for a in homes if a.kind is AllocationKind.PARAMETER))

    def save(self, path: str | Path) -> None:
        """Write the executable to a file, for ``spmd.load_executable``, ``spmd run`` and ``spmd bench``.

        Raises OutputFileError if there is no room; an existing file of that name is then unchanged.
        """
        from runtime.saved import save_bytes  # which is built on this class
        from spmd.output_file import write_file

        write_file(Path(path), save_bytes(self))

    def dump_buffers(self) -> str:
        from runtime.buffers.dump import dump_assignment

        return dump_assignment(self.program.assignment)

    def dump_thunks(self) -> str:
        from runtime.program.thunks.dump import dump_thunks

        return dump_thunks(self.program.thunks)

    # ---- devices
    @property
    def devices(self) -> range:
        """The devices whose tiles this process holds; in this class all of them."""
        return range(self.num_devices)

    @property
    def world(self) -> Communicator | None:
        """The ranks that run the program together; None if this process runs all devices."""
        return None

    @settings_for_compiling()
    def load(
        self,
        communicator: Communicator,
        blas_threads: int = 1,
        explain: Callable[[int], str] = "thunk {}".format,
    ) -> LoadedDevice:
        """Load the program on one rank's device. Raises RunError if the world and the program differ in size.

        If there are several devices, this process's matrix products use ``blas_threads`` threads from here on.
        explain: returns the text for thunk number n in messages.
        """
        if communicator.size > 1:
            set_blas_threads(blas_threads)
        return LoadedDevice(
            self.program,
            communicator,
            record=self.record,
            reference_every=self.reference_every,
            explain=explain,
        )

    @settings_for_compiling()
    def load_local(self) -> LocalDevices:
        """Load the program on ``devices``."""
        meanwhile, self.while_loading = self.while_loading, None
        if self.engine is not None:
            if meanwhile is not None:
                meanwhile()
            return self.engine.load_local(self)
        return LoopbackDevices(
            self.program,
            self.timeout_seconds,
            record=self.record,
            reference_every=self.reference_every,
            meanwhile=meanwhile,
        )

    def load_devices(self) -> None:
        """Make ``devices`` ready for a step. Otherwise the first use of them does this."""
        if self._loaded is None:
            self._loaded = self.load_local()

    @property
    def kernel_report(self) -> KernelReport | None:
        """The report on the engine's kernels; None if the program runs on the processor's cores."""
        return None if self.engine is None else self.engine.kernel_report(self._local)

    @property
    def _local(self) -> LocalDevices:
        self.load_devices()
        assert self._loaded is not None
        return self._loaded

    def recorded_steps(self) -> list[list[RecordedStep]]:
        """Return the recorded timestamps of the last steps, for each of ``devices``; see ``runtime/timeline``."""
        recorders = [device.recorder for device in self._local.devices]
        return [recorder.steps for recorder in recorders if recorder is not None]

    # ---- one step
    @overload
    def run(
        self,
        *state: ShardedArrays,
        gather: Gather = "first",
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
    ) -> ShardedArrays: ...
    @overload
    def run(
        self,
        *arrays: NDArray,
        gather: Gather = "first",
        sharded: bool = False,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
    ) -> list[NDArray]: ...
    def run(
        self,
        *arrays: NDArray | ShardedArrays,
        gather: Gather = "first",
        sharded: bool = False,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
    ) -> list[NDArray] | ShardedArrays:
        """Run one step on global arrays. Returns global arrays (see ``Gather``), or an empty list on other processes.

        If it is called with ``ShardedArrays``, in one piece or several, it returns such and gathers nothing. With
        ``sharded``, a process that holds one device passes that device's tiles and gets its tiles. Raises RunError if
        arrays do not fit and DonatedError if an earlier step has consumed one. An error of a device is raised as it is.

        ``infeed`` and ``outfeed``: as in ``feeding``; without them the run belongs to the ``feeding`` around it.
        """
        if infeed is not None or outfeed is not None:
            with self.feeding(infeed, outfeed, gather):
                return self.run(*arrays, gather=gather, sharded=sharded)  # type: ignore[arg-type]
        state = [array for array in arrays if isinstance(array, ShardedArrays)]
        if state:
            if len(state) != len(arrays):
                raise TypeError(
                    "run takes ShardedArrays or NumPy arrays, not both: put(array, first=NUMBER) divides those of NumPy"
                )
            joined = sum(state[1:], state[0])
            return self._outputs_of(self.step(self.fit(joined).tiles))
        given = [np.asarray(array) for array in arrays]
        if sharded:
            return self._run_own_tiles(given)
        self._require_count(len(given))
        return self.get(self._outputs_of(self.step(self.put(given).tiles)), gather)

    @contextmanager
    def feeding(
        self,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
        gather: Gather = "first",
    ) -> Iterator[HostFeeds]:
        """Feed the infeeds of the runs within this context, and collect the values of their outfeeds.

        ``infeed``: items, one for each infeed in the order in which they run (in a loop: one for each trip). An item is
        an entire array, or a tuple of items if the program expects a tuple; the devices take their tiles of it. It can
        also be a function from a device's number to the next tile of that device.

        ``outfeed``: a list, to which global values are appended at the end, on the processes that ``gather`` names. It
        can also be a function of a device's number and its tile, called when the device outputs it.

        The run raises RunError if no item is left or an item does not fit.
        """
        own = range(self.devices.start, self.devices.stop)
        feeds = HostFeeds(infeed, outfeed, own)
        with self.program.host.open_for(feeds):
            yield feeds
        if isinstance(outfeed, list):
            everyone = self._everyones_given(feeds, gather)
            if everyone is not None:
                outfeed += joined(everyone, self.program.num_partitions)

    def _everyones_given(self, feeds: HostFeeds, _: Gather) -> Sequence[Sequence[Given]] | None:
        """Return the values that all devices have sent to outfeeds; None for a process that gets none."""
        return [feeds.given[device] for device in self.devices]

    def run_devices(self, per_device: Sequence[Sequence[NDArray]]) -> list[list[NDArray]]:
        """Run one step on the own arrays of each of ``devices``; device = replica * num_partitions + partition."""
        tiles = [[DeviceArray(np.asarray(a)) for a in own] for own in per_device]
        return [[np.asarray(array) for array in device.outputs] for device in self.step(tiles)]

    def _run_own_tiles(self, tiles: list[NDArray]) -> list[NDArray]:
        if len(self.devices) != 1:
            raise RunError(
                f"sharded=True passes the tiles of one device, this process runs {len(self.devices)}: "
                "use put, or run_devices with the tiles of each"
            )
        return self.run_devices([tiles])[0]

    def step(self, per_device: Sequence[Sequence[DeviceArray]]) -> Sequence[RunningDevice]:
        """Run one step on tiles divided like the inputs. Returns the devices, which hold outputs until the next one."""
        local, self._loaded = self._local, None
        local.step(per_device)
        self._loaded = local  # devices whose step failed are not used again
        return local.devices

    def _outputs_of(self, devices: Sequence[RunningDevice]) -> ShardedArrays:
        return ShardedArrays(tuple([device.outputs for device in devices]), self.outputs)

    # ---- global arrays and tiles
    def put(self, arrays: Sequence[NDArray], first: int = 0) -> ShardedArrays:
        """Divide global arrays for inputs ``first``, ``first`` + 1, ... among the devices, which keep copies.

        Raises RunError if arrays do not fit. Of an array in a mapped file only this process's tiles are read.
        """
        if first + len(arrays) > len(self.inputs):
            self._require_count(first + len(arrays))
        # One by one: a sequence may make each array when its element is read.
        columns = [self._divided(i, array) for i, array in enumerate(arrays, first)]
        tiles = tuple(tuple(column[d] for column in columns) for d in range(len(self.devices)))
        return ShardedArrays(tiles, self.inputs[first : first + len(arrays)])

    def put_tiles(self, per_device: Sequence[Sequence[NDArray]], first: int = 0) -> ShardedArrays:
        """Put the tiles of inputs ``first``, ``first`` + 1, ... on each of ``devices``, without dividing them."""
        count = len(per_device[0])
        tiles = tuple(
            tuple(
                device.put(i, partial(copy_tile, np.asarray(tile)))
                for i, tile in enumerate(own, first)
            )
            for device, own in zip(self._local.devices, per_device, strict=True)
        )
        return ShardedArrays(tiles, self.inputs[first : first + count])

    def fit(self, state: ShardedArrays) -> ShardedArrays:
        """Return ``state`` divided like the inputs. An array divided otherwise is gathered and divided again."""
        self._require_count(len(state))
        if state.specs == self.inputs:
            return state
        fitted = ShardedArrays(tuple(() for _ in self.devices), ())
        for i, spec in enumerate(self.inputs):
            one = state[i : i + 1]
            if one.specs != (spec,):
                one = self.put(self.get(one, "all"), i)
            fitted += one
        return fitted

    def get(self, state: ShardedArrays, gather: Gather = "first") -> list[NDArray]:
        """Return global arrays of a run's outputs, or of any of them; with replicas, those of replica 0.

        Bounded dynamic arrays, which a run returns at their bounds, are cut to their sizes. The sizes are the last
        outputs and are left out. Raises RunError if such arrays come without the rest of the run's outputs, or if a
        size exceeds its bound.
        """
        shapes = self._shapes_of(state)
        arrays = []
        for i, spec in enumerate(state.specs):
            everyone = self._everyones([own[i] for own in state.tiles], gather)
            if everyone is not None:
                partitions = everyone[: self.program.num_partitions]
                arrays.append(gather_tiles(partitions, spec.sharding, spec.shape))
        return cut_to_sizes(arrays, shapes) if arrays else arrays

    def _shapes_of(self, state: ShardedArrays) -> list[ArrayShape]:
        """Return the arrays' shapes. Raises RunError for a part of a run's outputs that contains bounded arrays."""
        shapes = [one.shape for one in state.specs]
        if bounded_dimensions(shapes) and state.specs != self.outputs:
            raise RunError(
                f"{self.program.name} gives bounded dynamic arrays, whose sizes are its last outputs: "
                "get takes all outputs of the run together"
            )
        return shapes

    def _divided(self, number: int, array: NDArray) -> list[DeviceArray]:
        """Copy the tiles of input ``number`` to each of this process's devices. Raises RunError if it does not fit."""
        sharding, shape = self.inputs[number].sharding, self.inputs[number].shape
        if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
            raise RunError(
                f"{self.program.name}: argument {number}{self._named(number)} is {array.dtype}{list(array.shape)}, "
                f"expected {shape.without_layout()}"
            )
        return [
            device.put(number, partial(copy_shard, array, sharding, shape, own))
            for device, own in zip(self._local.devices, self._partitions(), strict=True)
        ]

    def _named(self, number: int) -> str:
        """Return the name of the parameter to which input ``number`` belongs, in parentheses."""
        names = [p.name for p in self.module.entry.parameters for _ in leaves(p.shape)]
        return f" ({names[number]})" if number < len(names) else ""

    def _everyones(self, own: Sequence[DeviceArray], _: Gather) -> Sequence[NDArray] | None:
        """Return one array's tiles on all devices, given those on this process's; None for a process that gets none."""
        return [tile.view() for tile in own]

    def _partitions(self) -> list[int]:
        return [device % self.program.num_partitions for device in self.devices]

    def _require_count(self, found: int) -> None:
        if found != len(self.inputs):
            raise RunError(f"{self.program.name} takes {len(self.inputs)} arrays, found {found}")
