"""Measured rates of a GPU, each with its protocol: products, memory, the link to the host, launches.

    python -m benchmarks.gpu.rates [--seconds 2] [--only products,memory,link,launches] [--json FILE]

Work runs back to back for so many seconds, products on normal data, since zeros draw less power and let the clock rise.
`burst` is the rate of the first tenth of a second after a pause, `sustained` that of the last half second. The driver
reports the clock and the power at the end. Bytes of copies within the device are those read and those written.
--double runs small sizes on a double of a GPU, which says whether this script runs, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.peers import environment, make_driver
from runtime.cpu.kernels.gemm.choose import plan_dot
from runtime.gpu.driver import Enqueue, GpuBlock, GpuDriver, GpuStream
from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType

#: m, n, k: cubes, and products of Llama 3's layers (8 B and 70 B) on 8192 positions, whole and on eight devices.
SIZES = (
    *((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)),
    (8192, 6144, 4096),
    (8192, 28672, 4096),
    (8192, 4096, 14336),
    (8192, 1280, 8192),
    (8192, 7168, 8192),
    (8192, 8192, 3584),
    (8192, 28672, 8192),
    (8192, 128256, 4096),
)
KINDS = {
    "bf16": (PrimitiveType.BF16, False),
    "tf32": (PrimitiveType.F32, True),
    "f32": (PrimitiveType.F32, False),
    "f64": (PrimitiveType.F64, False),
}
#: Types that are so slow, or so alike, that some sizes say all.
SELECTED = {"tf32": SIZES[3:7], "f32": SIZES[3:5], "f64": SIZES[3:5]}
_TILE = 1 << 22


@dataclass
class Bench:
    """Runs work on one stream for ``seconds`` at a time; arrays live until ``release``."""

    driver: GpuDriver
    seconds: float

    def __post_init__(self) -> None:
        self.stream: GpuStream = self.driver.stream()
        self._kept: list[GpuBlock] = []

    def array(
        self, dims: tuple[int, ...], kind: PrimitiveType, *, zeros: bool = False
    ) -> DeviceView:
        """Return a new array of normal data, a tile of 4 M elements again and again, or of zeros."""
        count, size = int(np.prod(dims)), kind.byte_size
        block = self.driver.allocate(count * size)
        self._kept.append(block)
        if not zeros:
            tile = np.random.default_rng(0).standard_normal(min(count, _TILE), np.float32)
            data = tile.astype(kind.numpy).view(np.uint8)
            self.driver.upload(block.address, data, self.stream)
            self.stream.synchronize()
            done = data.nbytes
            while done < count * size:
                step = min(done, count * size - done)
                self.driver.copy(block.address + done, block.address, step, self.stream)
                done += step
            self.stream.synchronize()
        return DeviceView(block.address, StridedView.dense(ArrayShape(kind, dims)))

    def release(self) -> None:
        self.stream.synchronize()
        self._kept.clear()

    def rates(self, work: Enqueue, amount: float) -> dict[str, Any]:
        """Return what ``work``, of which each call does ``amount``, does a second: at first, and in the end."""
        work(self.stream)
        one = self._span(work, 3)
        time.sleep(0.3)
        times = min(max(2, round(0.05 / one)), 2000)
        spans: list[float] = []
        end = time.perf_counter() + self.seconds
        while not spans or time.perf_counter() < end:
            spans.append(self._span(work, times))
        first = spans[: max(1, round(0.1 / (spans[0] * times)))]
        last = spans[-max(1, round(min(0.5, self.seconds / 3) / (spans[-1] * times))) :]
        return {
            "burst": amount / statistics.mean(first),
            "sustained": amount / statistics.mean(last),
            "calls": len(spans) * times,
            **driver_report(),
        }

    def _span(self, work: Enqueue, times: int) -> float:
        """Return the seconds of one of ``times`` calls in a row."""
        begin, end = self.driver.event(timed=True), self.driver.event(timed=True)
        self.stream.record(begin)
        for _ in range(times):
            work(self.stream)
        self.stream.record(end)
        end.synchronize()
        return 1e-9 * self.driver.nanoseconds(begin, end) / times


def driver_report() -> dict[str, float]:
    """Return the clock in MHz and the power in W as nvidia-smi has them now; nothing where there is none."""
    command = [
        "nvidia-smi",
        "--query-gpu=clocks.sm,power.draw.instant",
        "--format=csv,noheader,nounits",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        clock, power = done.stdout.splitlines()[0].split(",")
        return {"clock_mhz": float(clock), "power_w": float(power)}
    return {}


def products(bench: Bench, shrink: int) -> list[dict[str, Any]]:
    """Measure products by type, shape and data."""
    rows = []
    for name, (kind, tf32) in KINDS.items():
        for sizes in SELECTED.get(name, SIZES):
            m, n, k = (max(8, size // shrink) for size in sizes)
            for data in ("normal", "zeros") if sizes == (8192, 8192, 8192) else ("normal",):
                kernel = plan_dot((), (m, k, n), (kind, kind, kind), tf32=tf32)
                assert kernel is not None
                lhs, rhs = (bench.array(d, kind, zeros=data == "zeros") for d in ((m, k), (k, n)))
                on = KernelArraysOnDevice((lhs, rhs), (bench.array((m, n), kind, zeros=True),))
                work = library_work(kernel, on)
                assert work is not None
                flops = 2.0 * m * n * k
                row = {"type": name, "m": m, "n": n, "k": k, "data": data}
                row |= bench.rates(bench.driver.load(work), flops)
                rows.append(row)
                bench.release()
                print(
                    f"product {name} {m}x{n}x{k} {data}: burst {row['burst'] / 1e12:.1f}, "
                    f"sustained {row['sustained'] / 1e12:.1f} TFLOP/s, "
                    f"{row.get('clock_mhz', 0):.0f} MHz, {row.get('power_w', 0):.0f} W",
                    flush=True,
                )
    return rows


def memory(bench: Bench, shrink: int) -> list[dict[str, Any]]:
    """Measure copies within the device, by size."""
    rows = []
    for megabytes in (1, 4, 16, 64, 256, 1024, 4096):
        size = (megabytes << 20) // shrink**2
        one = bench.array((size // 4,), PrimitiveType.F32)
        other = bench.array((size // 4,), PrimitiveType.F32, zeros=True)

        def copy(
            stream: GpuStream, to: int = other.first, of: int = one.first, n: int = size
        ) -> None:
            bench.driver.copy(to, of, n, stream)

        found = bench.rates(copy, 2.0 * size)
        rows.append({"copied_bytes": size, **found})
        print(f"copy of {size:,} bytes: {found['sustained'] / 1e12:.3f} TB/s", flush=True)
        bench.release()
    return rows


def link(bench: Bench, shrink: int) -> list[dict[str, Any]]:
    """Measure copies between pinned memory of the host and the device."""
    rows = []
    for megabytes in (1, 16, 256):
        size = (megabytes << 20) // shrink
        host, block = bench.driver.pinned(size), bench.array((size,), PrimitiveType.U8, zeros=True)
        ways: dict[str, Callable[[GpuStream], None]] = {
            "to the device": lambda s, h=host, b=block: bench.driver.upload(b.first, h, s),  # type: ignore[misc]
            "to the host": lambda s, h=host, b=block: bench.driver.download(h, b.first, s),  # type: ignore[misc]
        }
        for way, work in ways.items():
            found = bench.rates(work, float(size))
            rows.append({"way": way, "bytes": size, **found})
            print(f"{size:,} bytes {way}: {found['sustained'] / 1e9:.1f} GB/s", flush=True)
        bench.release()
    return rows


def launches(bench: Bench, _: int) -> dict[str, float]:
    """Return the seconds of a tiny copy: one of many on a stream, with a wait behind each, as a node of a graph."""
    one, other = (bench.array((256,), PrimitiveType.F32, zeros=True) for _ in range(2))
    count, stream, driver = 1000, bench.stream, bench.driver

    def tiny(stream: GpuStream) -> None:
        driver.copy(other.first, one.first, 1024, stream)

    def timed(work: Callable[[], None]) -> float:
        work()
        stream.synchronize()
        begin = time.perf_counter()
        work()
        stream.synchronize()
        return (time.perf_counter() - begin) / count

    def one_by_one() -> None:
        for _ in range(count):
            tiny(stream)

    def each_waited_for() -> None:
        for _ in range(count):
            tiny(stream)
            stream.synchronize()

    found = {"one by one": timed(one_by_one), "waited for": timed(each_waited_for)}
    with driver.captures:
        stream.begin_capture()
        one_by_one()
        graph = stream.end_capture()
    graph.upload(stream)
    found["in a graph"] = timed(lambda: graph.launch(stream))
    for name, seconds in found.items():
        print(f"a copy of 1 KB {name}: {1e6 * seconds:.2f} us", flush=True)
    bench.release()
    return found


PARTS: dict[str, Callable[[Bench, int], Any]] = {
    "launches": launches,
    "link": link,
    "memory": memory,
    "products": products,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--double", action="store_true", help="small sizes on a double of a GPU")
    options = parser.parse_args()
    driver = make_driver(double=options.double)
    bench = Bench(driver, 0.01 if options.double else options.seconds)
    found: dict[str, Any] = {"environment": environment(driver), "seconds": bench.seconds}
    print(json.dumps(found["environment"]))
    for name in options.only.split(","):
        found[name] = PARTS[name](bench, 64 if options.double else 1)
        if options.json:  # after each part: a machine may be taken away
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
