"""Kernels on a GPU beside JAX's in the same run, with the copy bandwidth that was measured in it.

    python -m benchmarks.gpu.kernels [NAMES] [--rounds 20] [--json FILE]

Each row has two times of both: `step`, the median of steps that the host waits for, by its clock, so that launching and
waiting count; `in a row`, of a step of 20 that follow each other without a wait, which is the GPU's time as long as the
host launches faster than the GPU works. reached: bytes that must be read and written, over our time in a row and the
bandwidth of copies within the device; of products, TFLOP/s. --double runs small arrays on a double of a GPU, which says
whether this script runs, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.peers import (
    copy_rate,
    environment,
    forms,
    make_driver,
    ours,
    seconds_in_a_row,
    theirs,
)
from benchmarks.timing.turns import in_turns
from runtime.gpu.driver import GpuDriver


@dataclass(frozen=True)
class Case:
    """``donated``: that many arguments are the first results of the step before. flops: of products."""

    function: Callable[..., Any]
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    donated: int = 0
    flops: int = 0

    def arrays(self, shrink: int) -> list[np.ndarray]:
        """``shrink``: of the first dimension (of all, for products)."""
        rng = np.random.default_rng(0)
        found = []
        for dims, kind in self.arguments:
            kept = tuple(
                max(1, size // shrink) if d == 0 or self.flops else size
                for d, size in enumerate(dims)
            )
            if jnp.dtype(kind) == np.int32:  # of rows of the first array
                found.append(rng.integers(0, found[0].shape[0], kept, np.int32))
            else:
                found.append(rng.random(kept, np.float32).astype(jnp.dtype(kind)))
        return found


def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v


def layernorm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    variance = (centred * centred).mean(1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def convolution(x: Any, w: Any, strides: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (strides, strides), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def convolution_gradients(x: Any, w: Any, g: Any) -> Any:
    return jax.vjp(lambda a, b: convolution(a, b, 2), x, w)[1](g)


#: Steps that follow each other without a wait.
ROW_OF_STEPS = 20
SHOWN = (("step", "step_ms"), ("in a row", "in_a_row_ms"))
ROWS, ROW = ((65536, 4096), "float32"), ((1, 4096), "float32")
LINE = ((1 << 27,), "float32")
CUBE = ((8192, 8192), "bfloat16")
IMAGES, WINDOWS = ((256, 56, 56, 128), "bfloat16"), ((3, 3, 128, 128), "bfloat16")
HALVED = ((256, 28, 28, 128), "bfloat16")
CONVOLUTION_FLOPS = 2 * 256 * 56 * 56 * 128 * 9 * 128
CASES = {
    "elementwise": Case(lambda x, y: jnp.tanh(x) * y + x, (ROWS, ROWS)),
    "bias gelu": Case(lambda x, b: jax.nn.gelu(x + b, approximate=True), (ROWS, ROW)),
    "layernorm": Case(layernorm, (ROWS, ROW, ROW)),
    "softmax": Case(lambda x: jax.nn.softmax(x, axis=1), (ROWS,)),
    "adam": Case(adam, (LINE, LINE, LINE, LINE), donated=3),
    "column sums": Case(lambda x: (x * x).sum(0), (ROWS,)),
    "transpose": Case(lambda x: x.T, (((16384, 16384), "float32"),)),
    "gather": Case(lambda x, i: x[i], (ROWS, ((65536,), "int32"))),
    "scatter-add": Case(
        lambda x, i, y: x.at[i].add(y),
        (((32768, 4096), "float32"), ((65536,), "int32"), ROWS),
        donated=1,
    ),
    "product bf16": Case(lambda x, y: x @ y, (CUBE, CUBE), flops=2 * 8192**3),
    "product f8": Case(
        lambda x, y: jax.lax.dot(x, y, preferred_element_type=jnp.bfloat16),
        (((8192, 8192), "float8_e4m3fn"),) * 2,
        flops=2 * 8192**3,
    ),
    "convolution": Case(convolution, (IMAGES, WINDOWS), flops=CONVOLUTION_FLOPS),
    "strided gradients": Case(
        convolution_gradients, (IMAGES, WINDOWS, HALVED), flops=2 * CONVOLUTION_FLOPS // 4
    ),
    "small": Case(lambda x: x + 1, (((1024,), "float32"),)),
}


def measure(case: Case, driver: GpuDriver, rounds: int, rate: float, shrink: int) -> dict[str, Any]:
    arrays = case.arrays(shrink)
    jitted = jax.jit(case.function, donate_argnums=tuple(range(case.donated)))
    mine, executable = ours(jitted, arrays, case.donated, driver)
    peer = theirs(jitted, arrays, case.donated)
    works = {"ours": mine} if peer is None else {"ours": mine, "jax": peer}
    for work in works.values():
        for _ in range(3):  # one by one, captured, replayed
            work()
    times = {name: statistics.median(all_) for name, all_ in in_turns(works, rounds).items()}
    results = [boundary.shape.byte_size for boundary in executable.outputs]
    moved = sum(x.nbytes for x in arrays) + sum(results)
    in_a_row = {"ours": seconds_in_a_row(executable, ROW_OF_STEPS)}
    if peer is not None:
        in_a_row["jax"] = peer.seconds_in_a_row(ROW_OF_STEPS)
    row: dict[str, Any] = {
        "step_ms": {name: 1e3 * seconds for name, seconds in times.items()},
        "in_a_row_ms": {name: 1e3 * seconds for name, seconds in in_a_row.items()},
        "bytes": moved,
        "reached": moved / rate / in_a_row["ours"],
        "kernels": forms(executable),
    }
    if case.flops:
        row |= {f"{name}_tflops": case.flops / seconds / 1e12 for name, seconds in in_a_row.items()}
    return row


def _columns(milliseconds: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:8.3f} ms" for name, value in milliseconds.items())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--double", action="store_true", help="small arrays on a double of a GPU")
    options = parser.parse_args()
    driver = make_driver(double=options.double)
    shrink = 128 if options.double else 1
    where = environment(driver)
    print(json.dumps(where))
    rate = copy_rate(driver, (2 << 30) // shrink**2)
    print(f"copies within the device: {rate / 1e12:.2f} TB/s, read and written")
    rows = {}
    for name in options.names or CASES:
        row = rows[name] = measure(CASES[name], driver, options.rounds, rate, shrink)
        columns = (f"{what}: {_columns(row[key])}" for what, key in SHOWN)
        reached = (
            f"{row['ours_tflops']:.0f} TFLOP/s"
            if "ours_tflops" in row
            else f"{100 * row['reached']:.0f} % of copies"
        )
        hosted = len(row["kernels"]["hosted"])
        note = f"  ({hosted} kernels by the host)" if hosted else ""
        print(f"{name:14s} {'  '.join(columns)}  {reached}{note}", flush=True)
    if options.json:
        found = {"environment": where, "copy_bytes_per_s": rate, "kernels": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
