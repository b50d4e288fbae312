"""JAX functions on a GPU, ours and JAX's own, step after step on arrays that stay on the device."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# JAX takes three quarters of the memory otherwise.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

import spmd
from benchmarks.timing.kernel_times import least_of
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.environment import describe_environment
from launch.target.engine_choice import gpu_options
from launch.target.machine_option import machine_for
from runtime.executable import Executable
from runtime.gpu.device import LoadedGpuDevice
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.loopback import GpuLoopbackDevices

Arrays = Sequence[np.ndarray]
Step = Callable[[], None]


def make_driver(*, double: bool) -> GpuDriver:
    """``double``: of a GPU, for a look at whether a benchmark runs."""
    if double:
        from tests.runtime.gpu.doubles.host_driver import HostDriver

        return HostDriver(free_bytes=1 << 40)
    from runtime.gpu.availability import require_gpu

    require_gpu()
    from runtime.gpu.cuda.driver import CudaDriver

    file = gpu_options().tuning_file
    return CudaDriver(0, Tuning(Path(file), measures=True) if file else None)


def environment(driver: GpuDriver) -> dict[str, Any]:
    """Return the environment in which figures were taken."""
    return {
        "gpu": driver.name,
        "arch": driver.arch,
        "multiprocessors": driver.multiprocessors,
        "jax": jax.__version__,
        "jax_backend": jax.default_backend(),
        **describe_environment(),
    }


def ours(jitted: Any, arrays: Arrays, donated: int, driver: GpuDriver) -> tuple[Step, Executable]:
    """Return a step; its first ``donated`` arguments are the first results of the step before.

    SPMD_GPU_GRAPHS=off does without graphs, as profilers of single kernels want it.
    """
    text = jitted.lower(*arrays).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    options = CompileOptions(machine=machine_for(None, backend="gpu"))
    executable = compile_module(spmd.parse(text), 1, options)
    executable.engine = GpuEngine(lambda _: driver, launch_maker, gpu_options())
    state = [executable.put(arrays)]

    def step() -> None:
        results = executable.run(state[0])
        if donated:
            state[0] = results[:donated] + state[0][donated:]

    return step, executable


def one_by_one(executable: Executable, step: Step) -> Step:
    """Return ``step`` without graphs, on the same plan and memory."""
    devices = _devices(executable)

    def run() -> None:
        for device in devices:
            device.use_graphs(False)
        try:
            step()
        finally:
            for device in devices:
                device.use_graphs(True)

    return run


def seconds_in_a_row(executable: Executable, times: int) -> float:
    """Return the seconds that the GPU takes for a step when ``times`` follow each other without a wait of the host."""
    return _devices(executable)[0].seconds_in_a_row(times)


@dataclass
class Peer:
    """JAX's own step, with the arrays that it goes on with."""

    jitted: Any
    state: list[Any]
    donated: int

    def step(self) -> list[Any]:
        results = jax.tree.leaves(self.jitted(*self.state))
        if self.donated:
            self.state = [*results[: self.donated], *self.state[self.donated :]]
        return results

    def __call__(self) -> None:
        jax.block_until_ready(self.step())

    def seconds_in_a_row(self, times: int) -> float:
        """Return the seconds of a step of ``times`` that are dispatched before the host waits for the last."""
        jax.block_until_ready(self.step())
        begin = time.perf_counter()
        for _ in range(times):
            results = self.step()
        jax.block_until_ready(results)
        return (time.perf_counter() - begin) / times


def theirs(jitted: Any, arrays: Arrays, donated: int) -> Peer | None:
    """The same by JAX; None where it has no GPU."""
    if jax.default_backend() != "gpu":
        return None
    return Peer(jitted, [jnp.array(x) for x in arrays], donated)


def forms(executable: Executable) -> dict[str, Any]:
    """Return how the executable's kernels are computed."""
    found = _devices(executable)[0].kernel_report
    return {"ptx": found.ptx, "library": found.library, "hosted": [list(x) for x in found.hosted]}


def _devices(executable: Executable) -> list[LoadedGpuDevice]:
    executable.load_devices()
    local = executable._loaded
    assert isinstance(local, GpuLoopbackDevices)
    return local.devices


def kernel_times(
    executable: Executable, arrays: Arrays, donated: int
) -> list[tuple[str, int, float]]:
    """Return (thunk and its kind, 1, milliseconds) of a step, the least of several, those that take most first.

    The devices are loaded anew, with events around what they do and without graphs.
    """
    executable._loaded, executable.record = None, True
    state = executable.put(arrays)
    for _ in range(5):
        results = executable.run(state)
        state = results[:donated] + state[donated:] if donated else state
    rows = [(f"{name} {kind}", 1, 1e3 * t) for (name, kind), t in least_of(executable).items()]
    return sorted(rows, key=lambda row: -row[2])


def profiled_kernels(peer: Peer, steps: int = 3) -> list[tuple[str, int, float]]:
    """Return (kernel, times, milliseconds) of a step of JAX's by its own profiler, those that take most first."""
    peer()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            for _ in range(steps):
                peer()
        (file,) = Path(folder).rglob("perfetto_trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    devices = {
        event["pid"]
        for event in events
        if event.get("name") == "process_name" and "/device:GPU" in event["args"]["name"]
    }
    lanes = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"].startswith("Stream")
    }
    counts: Counter[str] = Counter()
    microseconds: Counter[str] = Counter()
    for event in events:
        if (
            event.get("ph") == "X"
            and event["pid"] in devices
            and (event["pid"], event["tid"]) in lanes
        ):
            counts[event["name"]] += 1
            microseconds[event["name"]] += event["dur"]
    return [
        (name, counts[name] // steps, 1e-3 * t / steps) for name, t in microseconds.most_common()
    ]


def copy_rate(driver: GpuDriver, num_bytes: int, times: int = 10) -> float:
    """Bytes that are read and written a second by copies within the device."""
    one, other, stream = driver.allocate(num_bytes), driver.allocate(num_bytes), driver.stream()
    begin, end = driver.event(timed=True), driver.event(timed=True)
    for events in ((), (begin, end)):  # the first time to warm up
        if events:
            stream.record(begin)
        for _ in range(times):
            driver.copy(other.address, one.address, num_bytes, stream)
        if events:
            stream.record(end)
    stream.synchronize()
    return 2e9 * num_bytes * times / driver.nanoseconds(begin, end)
