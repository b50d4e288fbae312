"""Convolutions and their gradients beside XLA CPU's on one core, in turns in one run, with the limit beside each.

    python -m benchmarks.native.convolutions [NAMES] [--rounds 10] [--json FILE]

Both compilers compile each JAX function whole, with gradients as JAX writes them (holes between elements, reversed
kernels, groups of the batch). Times are the least of the rounds; the median ratio stands beside them. The limit is the
larger of two times: that of the products that meet no padding, at the rate of our 1024 cube in the same rounds, and
that of the operands' and the result's bytes, at the bandwidth of a copy of as many. The error is the largest difference
between both results in parts of the largest value.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.timing.xla_flags import ONE_THREAD

os.environ.update(ONE_THREAD)

import jax
import numpy as np

from benchmarks.native.kernels import Argument, Case, copy_seconds, ours, theirs
from benchmarks.native.matrix_products import Product, work_of
from benchmarks.timing.turns import geometric_mean, in_turns
from launch.report.environment import describe_environment
from runtime.cpu.libraries.blas import set_blas_threads

BATCH = 8
#: The product whose rate counts as the best that can be reached.
CUBE = Product(1024, 1024, 1024)


@dataclass(frozen=True)
class Layer:
    """A square image of ``size``, ``inputs`` to ``outputs`` features, a square kernel; padded to keep its size.

    ``order`` says where images have their features, "NHWC" or "NCHW"; it decides the kernel's order, too.
    """

    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    order: str = "NHWC"
    dtype: str = "float32"

    @property
    def x(self) -> tuple[int, ...]:
        spatial = (self.size, self.size)
        last = (BATCH, *spatial, self.inputs)
        return last if self.order == "NHWC" else (BATCH, self.inputs, *spatial)

    @property
    def w(self) -> tuple[int, ...]:
        spatial, inputs = (self.kernel, self.kernel), self.inputs // self.groups
        last = (*spatial, inputs, self.outputs)
        return last if self.order == "NHWC" else (self.outputs, inputs, *spatial)

    @property
    def y(self) -> tuple[int, ...]:
        spatial = (-(-self.size // self.stride),) * 2
        last = (BATCH, *spatial, self.outputs)
        return last if self.order == "NHWC" else (BATCH, self.outputs, *spatial)

    @property
    def flops(self) -> float:
        """Flops of the products that meet no padding."""
        positions = range(-(-self.size // self.stride))
        reach = (self.kernel - 1) * self.dilation + 1
        padding = max((len(positions) - 1) * self.stride + reach - self.size, 0) // 2
        met = sum(
            0 <= o * self.stride + k * self.dilation - padding < self.size
            for o in positions
            for k in range(self.kernel)
        )
        return 2.0 * BATCH * met * met * self.inputs // self.groups * self.outputs

    def forward(self, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            w,
            (self.stride, self.stride),
            "SAME",
            rhs_dilation=(self.dilation, self.dilation),
            dimension_numbers=(self.order, *KERNELS[self.order]),
            feature_group_count=self.groups,
        )

    def input_gradient(self, w: Any, dy: Any) -> Any:
        x = jax.ShapeDtypeStruct(self.x, self.dtype)
        return jax.linear_transpose(partial(self.forward, w=w), x)(dy)[0]

    def kernel_gradient(self, x: Any, dy: Any) -> Any:
        w = jax.ShapeDtypeStruct(self.w, self.dtype)
        return jax.linear_transpose(partial(self.forward, x), w)(dy)[0]

    def cases(self) -> dict[str, Case]:
        shapes: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
            "": (self.forward, (self.x, self.w)),
            " dx": (self.input_gradient, (self.w, self.y)),
            " dw": (self.kernel_gradient, (self.x, self.y)),
        }
        return {
            name: Case(function, tuple(Argument(dims, self.dtype) for dims in arguments))
            for name, (function, arguments) in shapes.items()
        }


#: For each order of the images, the orders of the kernel and of the result.
KERNELS = {"NHWC": ("HWIO", "NHWC"), "NCHW": ("OIHW", "NCHW")}

LAYERS = {
    "56x56 64->64 k3": Layer(56, 64, 64, 3),
    "28x28 128->128 k3": Layer(28, 128, 128, 3),
    "7x7 512->512 k3": Layer(7, 512, 512, 3),
    "224x224 3->64 k7 s2": Layer(224, 3, 64, 7, stride=2),
    "28x28 256->128 k1": Layer(28, 256, 128, 1),
    "28x28 128->256 k1 s2": Layer(28, 128, 256, 1, stride=2),
    "28x28 128->128 k3 s2": Layer(28, 128, 128, 3, stride=2),
    "28x28 128->128 k3 d2": Layer(28, 128, 128, 3, dilation=2),
    "28x28 128->128 k3 g4": Layer(28, 128, 128, 3, groups=4),
    "28x28 128 k3 depthwise": Layer(28, 128, 128, 3, groups=128),
    "15x15 37->51 k3": Layer(15, 37, 51, 3),
    "28x28 128->128 k3 NCHW": Layer(28, 128, 128, 3, order="NCHW"),
    "28x28 128->128 k3 bf16": Layer(28, 128, 128, 3, dtype="bfloat16"),
}


def measure(name: str, layer: Layer, case: Case, rounds: int) -> dict[str, Any]:
    arrays = case.arrays()
    jitted = jax.jit(case.function)
    mine, (got,) = ours(case, arrays, jitted)
    peer, (wanted,) = theirs(case, arrays, jitted)
    error = relative_error(got, wanted)
    assert error < (1e-4 if layer.dtype == "float32" else 2e-2), (name, error)
    mine()
    peer()
    works = {"ours": mine, "xla": peer, "cube": work_of(CUBE)["ours"]}
    found = in_turns(works, rounds)
    least = {what: min(times) for what, times in found.items()}
    moved = sum(x.nbytes for x in (*arrays, wanted))
    limit = max(
        layer.flops / CUBE.flops * least["cube"],
        copy_seconds(moved, rounds),
    )
    return {
        "convolution": name,
        "ours_ms": 1e3 * least["ours"],
        "xla_ms": 1e3 * least["xla"],
        "ratio": least["ours"] / least["xla"],
        "median_ratio": statistics.median(
            a / b for a, b in zip(found["ours"], found["xla"], strict=True)
        ),
        "limit_ms": 1e3 * limit,
        "gflops": 1e-9 * layer.flops / least["ours"],
        "error": error,
    }


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference in parts of the largest value."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def main() -> int:
    cases = {
        name + what: (layer, case)
        for name, layer in LAYERS.items()
        for what, case in layer.cases().items()
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(cases)}")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    set_blas_threads(1)
    environment = describe_environment()
    print(json.dumps(environment))
    print(
        f"{'convolution':26s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'median':>6s} {'limit ms':>9s} "
        f"{'GFLOP/s':>8s} {'error':>8s}"
    )
    rows = []
    for name in options.names or cases:
        row = measure(name, *cases[name], options.rounds)
        rows.append(row)
        print(
            f"{name:26s} {row['ours_ms']:9.3f} {row['xla_ms']:9.3f} {row['ratio']:6.2f} {row['median_ratio']:6.2f} "
            f"{row['limit_ms']:9.3f} {row['gflops']:8.1f} {row['error']:8.1e}",
            flush=True,
        )
    ratios = [row["ratio"] for row in rows]
    print(
        f"geometric mean of the ratios {geometric_mean(ratios):.2f}, largest {max(ratios):.2f}, "
        f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} above 1"
    )
    if options.json:
        figures = {"environment": environment, "convolutions": rows}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
