"""Kernels of attention fusions: their times on a GPU, or their registers and shared memory, which need no GPU.

    python -m benchmarks.gpu.attention [--resources [--arch sm_90]] [--rows 4096] [--heads 32] [--kinds bf16,f32]

Each line is a mode, an element type, a depth and a mask. Operations are two per multiplication in the products that the
program contains, halved for causal masks, as FlashAttention counts them. Arrays are zeros, which draw less power than
other numbers. --double runs small sizes on a double of a GPU, which says whether this script runs, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

import runtime.cpu.kernels  # noqa: F401 - doubles compute by its binders
from runtime.gpu.driver import Enqueue, GpuDriver, GpuStream
from runtime.gpu.views import DeviceView
from tests.runtime.gpu.attention_calls import work_on
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.resources import resources
from tests.runtime.gpu.triton.running import dense_views, kernel_of

#: Mode -> products along rows, columns and depth.
MODES = {"forward": 2, "of_rows": 3, "of_columns": 4}
IN_TF32 = ", operand_precision={default,default}"


def driver_of(*, double: bool) -> GpuDriver:
    if double:
        return HostDriver(free_bytes=1 << 40)
    from runtime.gpu.availability import require_gpu

    require_gpu()
    from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

    return CudaDriver(0)


def milliseconds(driver: GpuDriver, text: str, seconds: float) -> float:
    """Return the time of a launch among launches that follow each other, on arrays of zeros."""
    operands, results = dense_views(text)
    blocks = [driver.allocate(view.byte_size) for view in (*operands, *results)]
    placed = [
        DeviceView(block.address, view)
        for block, view in zip(blocks, (*operands, *results), strict=True)
    ]
    count = len(operands)
    enqueue, stream = driver.load(work_on(text, placed[:count], placed[count:])), driver.stream()
    once = _repeated(enqueue, stream, 1) and _repeated(enqueue, stream, 1)
    times = max(1, min(1000, int(seconds / once)))
    return 1e3 * _repeated(enqueue, stream, times) / times


def _repeated(enqueue: Enqueue, stream: GpuStream, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        enqueue(stream)
    stream.synchronize()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--resources", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kinds", default="bf16,f32")
    parser.add_argument("--depths", default="64,128")
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    rows, heads = (32, 1) if options.double else (options.rows, options.heads)
    driver = None if options.resources else driver_of(double=options.double)
    kinds, depths = options.kinds.split(","), map(int, options.depths.split(","))
    for kind, depth, mask, mode in itertools.product(kinds, depths, ("", "causal"), MODES):
        sizes = {"g": heads, "s": rows, "t": rows, "d": depth, "e": depth}
        case = Attention(**sizes, kind=kind, mask=mask, hidden="-1e30", precision=IN_TF32)
        text = getattr(case, mode)()
        name = f"{mode:10s} {kind:4s} depth {depth:3d} {mask or 'no mask':8s}"
        if driver is None:
            used = resources(kernel_of(text), options.arch)
            print(
                f"{name}  {used.registers} registers, {used.spilled} bytes spilled, {used.warps} warps,"
                f" {used.shared:,} bytes shared",
                flush=True,
            )
            continue
        taken = milliseconds(driver, text, options.seconds)
        operations = 2 * MODES[mode] * heads * rows**2 * depth / (2 if mask else 1)
        print(f"{name}  {taken:8.3f} ms  {operations / taken / 1e9:7.1f} TFLOP/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
