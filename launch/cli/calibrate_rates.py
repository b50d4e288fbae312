"""The measurements of `spmd calibrate`: each gives the best of several tries, as disturbances only delay.

Loops are native code of the kind that fused kernels are made of, so that the figures are of this project's kernels.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.blas import limited_blas_threads
from runtime.codegen.element_operations import ElementSignature, has_operation
from runtime.kernel import NUMPY_KERNELS, Action, KernelArrays
from runtime.kernels.dot import DotKernel
from runtime.kernels.native_elementwise import NativeElementwiseKernel
from spmd.hlo import Opcode
from spmd.literal import NDArray
from spmd.machine.description import Exchange, MachineDescription, MemoryLevel, Rates
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

#: Seconds that one figure may take, and tries among which the best counts.
BUDGET = 0.15
LEAST_TRIES = 5

#: Working sets, read and written bytes together, up to each of which a bandwidth is measured.
WORKING_SETS = tuple(1 << power for power in range(14, 29, 2))
#: Fits into the nearest cache of anything this runs on.
NEAR_BYTES = 1 << 14
#: Products of a rank's usual sizes; the fastest one is the rate.
GEMM_SIZES = (256, 512, 1024)
#: Elements in one native call: so many that the call itself does not count.
ELEMENTS = 1 << 22
TYPES = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.BF16)
#: Thunks of the two programs whose difference is timed.
THUNKS = (50, 250)
STEPS = 30
#: Elements of the all-reduces between two devices.
FEW, MANY = 16, 1 << 20


def measure_machine(cpu: str) -> MachineDescription:
    """This machine, one core of it. ``cpu``: what it is called."""
    with limited_blas_threads(1):
        machine = MachineDescription(
            name="calibrated",
            kind="cpu",
            source=f"measured on one core of {cpu}",
            units=1,
            levels=_levels(),
            rates=tuple((kind, _rates(kind)) for kind in TYPES),
            kernel_seconds=_kernel_seconds(),
            row_seconds=_row_seconds(),
            thunk_seconds=_thunk_seconds(),
            exchanges=(_exchange(),),
        )
    return replace(machine, name=f"calibrated-{machine.digest[:8]}")


def best_seconds(action: Callable[[], object], budget: float = BUDGET) -> float:
    """The shortest run of ``action``, tried for about ``budget`` seconds after one that warms up."""
    action()
    shortest, tries, begin = math.inf, 0, time.perf_counter()
    while tries < LEAST_TRIES or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        action()
        shortest = min(shortest, time.perf_counter() - start)
        tries += 1
    return shortest


# ---- loops
def _levels() -> tuple[MemoryLevel, ...]:
    """One for each working set; the last one is memory, all of it."""
    levels = [
        MemoryLevel(f"up to {size >> 10} KiB", size, _copy_bandwidth(size)) for size in WORKING_SETS
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    last = levels.pop()
    return (*levels, MemoryLevel("memory", max(memory, last.size), last.bandwidth))


def _copy_bandwidth(working_set: int) -> float:
    """Bytes per second, read and written, of one array negated into another, on each core while all do so."""
    count = working_set // 8
    repeats = max(1, ELEMENTS // count)
    cores = len(os.sched_getaffinity(0))
    runs = [_loop(Opcode.NEGATE, PrimitiveType.F32, (repeats, count), 1) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        return 8 * count * repeats / best_seconds(lambda: list(pool.map(lambda run: run(), runs)))


def _rates(kind: PrimitiveType) -> Rates:
    count = NEAR_BYTES // (3 * kind.byte_size)
    dims = (ELEMENTS // count, count)
    elements = math.prod(dims)
    add = elements / best_seconds(_loop(Opcode.ADD, kind, dims, 2))
    exp = elements / best_seconds(_loop(Opcode.EXPONENTIAL, kind, dims, 1))
    return Rates(_matrix_rate(kind), add, exp)


def _loop(opcode: Opcode, kind: PrimitiveType, dims: tuple[int, ...], operands: int) -> Action:
    """``opcode`` on rows of ``dims[-1]`` elements, all other dimensions going over the same row again."""
    row = dims[-1:]
    result, *inputs = (_repeated(np.full(row, 0.5, kind.numpy), dims) for _ in range(operands + 1))
    signature = ElementSignature(opcode, (kind,) * operands, kind)
    if has_operation(signature):
        arrays = KernelArrays(tuple(inputs), (result,))
        return NUMPY_KERNELS.bind(NativeElementwiseKernel(signature), arrays)
    assert opcode is Opcode.EXPONENTIAL, "arithmetic is native"
    whole = np.full(dims, 0.5, kind.numpy)

    def by_numpy() -> None:
        np.exp(whole, out=whole)
        whole.fill(0.5)

    return by_numpy


def _repeated(row: NDArray, dims: tuple[int, ...]) -> NDArray:
    strides = (0,) * (len(dims) - 1) + row.strides
    return np.lib.stride_tricks.as_strided(row, dims, strides)


def _kernel_seconds() -> float:
    """A kernel of one element: what is there besides elements and rows."""
    run = _loop(Opcode.ADD, PrimitiveType.F32, (1, 1), 2)
    many = 200

    def repeated() -> None:
        for _ in range(many):
            run()

    return best_seconds(repeated) / many


def _row_seconds() -> float:
    """What short rows cost beyond their elements in one long row of the same bytes."""
    rows, elements = 1 << 14, 16
    short = best_seconds(_loop(Opcode.ADD, PrimitiveType.F32, (rows, elements), 2))
    near = NEAR_BYTES // 12
    long = best_seconds(_loop(Opcode.ADD, PrimitiveType.F32, (rows * elements // near, near), 2))
    return max(0.0, (short - long) / rows)


# ---- products
def _matrix_rate(kind: PrimitiveType) -> float:
    """Flops per second of the fastest square product, made as programs on this machine make it."""
    return max(_gemm_rate(size, kind) for size in GEMM_SIZES)


def _gemm_rate(size: int, kind: PrimitiveType) -> float:
    kernel = DotKernel.planned((), (size, size, size), (kind, kind, kind))
    assert kernel is not None, "floats are summed"
    lhs, rhs = (np.full((size, size), 0.5, kind.numpy) for _ in range(2))
    out = np.empty((size, size), kind.numpy)
    scratch = tuple(np.zeros(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    arrays = KernelArrays((lhs, rhs), (out,), scratch)
    return 2 * size**3 / best_seconds(NUMPY_KERNELS.bind(kernel, arrays))


# ---- programs
def _thunk_seconds() -> float:
    """What one more thunk adds to a step."""
    few, many = (_step_seconds(_chain(count), 1) for count in THUNKS)
    return max(0.0, (many - few) / (THUNKS[1] - THUNKS[0]))


def _chain(length: int) -> str:
    """Scalar operations that no pass makes fewer."""
    names = ["x", *(f"v{n}" for n in range(length))]
    opcodes = ("add", "multiply")
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}v{n} = f32[] {opcodes[n % 2]}({names[n]}, y)"
        for n in range(length)
    ]
    parameters = ["  x = f32[] parameter(0)", "  y = f32[] parameter(1)"]
    return "\n".join(["HloModule chain", "ENTRY main {", *parameters, *lines, "}"])


def _exchange() -> Exchange:
    """All-reduces between two devices of this process: half of the bytes are read, half are written elsewhere."""
    few, many = (_step_seconds(_all_reduce(count), 2) for count in (FEW, MANY))
    bandwidth = 4 * (MANY - FEW) / max(many - few, 1e-9)
    return Exchange("devices of one process", 2, bandwidth, few)


def _all_reduce(count: int) -> str:
    return f"""HloModule exchange, replica_count=2
sum {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] add(x, y)
}}
ENTRY main {{
  x = f32[{count}] parameter(0)
  ROOT all = f32[{count}] all-reduce(x), replica_groups={{}}, to_apply=sum
}}"""


def _step_seconds(text: str, devices: int) -> float:
    executable = compile_module(parse_module(text), devices, CompileOptions(partitioned=True))
    state = executable.put([np.ones(place.shape.dims, np.float32) for place in executable.inputs])
    seconds: Sequence[float] = [_timed(lambda: executable.run(state)) for _ in range(STEPS)]
    return min(seconds)


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
