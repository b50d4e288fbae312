"""Products of matrices on one core beside np.matmul and XLA CPU (where jax is installed), in turn in one run.

    python benchmarks/matrix_products.py [NAMES] [--rounds 15] [--json FILE]

Ours is the native action that a dot becomes, on operands as they lie (T: the matrix lies by column). Figures are the
least of the rounds; np.matmul has no bf16, and none of s8 into s32 that is fast: there NumPy stands for the same kernel
without native code.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import runtime.kernels  # noqa: F401 - fills the library
from benchmarks.timing.turns import Work, least_seconds
from benchmarks.timing.xla_flags import ONE_THREAD
from launch.report.environment import describe_environment
from runtime.blas import set_blas_threads
from runtime.kernel import NUMPY_KERNELS, KernelArrays
from runtime.kernels.dot import DotKernel, by_numpy
from spmd.shape import PrimitiveType

P = PrimitiveType


@dataclass(frozen=True)
class Product:
    """``turned``: which operands lie by column, as in "TN"."""

    m: int
    k: int
    n: int
    batch: tuple[int, ...] = ()
    turned: str = "NN"
    operands: PrimitiveType = P.F32
    result: PrimitiveType = P.F32

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.batch) * self.m * self.k * self.n

    def matrix(self, which: int) -> np.ndarray[Any, Any]:
        rows, columns = ((self.m, self.k), (self.k, self.n))[which]
        turned = self.turned[which] == "T"
        shape = (*self.batch, columns, rows) if turned else (*self.batch, rows, columns)
        values = np.random.default_rng(which).integers(-9, 10, shape).astype(self.operands.numpy)
        return np.swapaxes(values, -1, -2) if turned else values


PRODUCTS = {
    **{f"{n} cube": Product(n, n, n) for n in (64, 256, 512, 1024, 2048)},
    "1024 cube TN": Product(1024, 1024, 1024, turned="TN"),
    "1024 cube TT": Product(1024, 1024, 1024, turned="TT"),
    **{f"{m}x1024x1024": Product(m, 1024, 1024) for m in (1, 2, 8, 32)},
    "32x1024x1024 NT": Product(32, 1024, 1024, turned="NT"),
    "1024x1024x1": Product(1024, 1024, 1),
    "batched 96x64^3": Product(64, 64, 64, (96,)),
    "batched 96x64^3 NT": Product(64, 64, 64, (96,), "NT"),
    "batched 1000x4^3": Product(4, 4, 4, (1000,)),
    "512 cube bf16": Product(512, 512, 512, operands=P.BF16, result=P.BF16),
    "512 cube s8 s32": Product(512, 512, 512, operands=P.S8, result=P.S32),
    "256 cube s32": Product(256, 256, 256, operands=P.S32, result=P.S32),
}


def work_of(product: Product) -> dict[str, Work]:
    lhs, rhs = product.matrix(0), product.matrix(1)
    out = np.zeros((*product.batch, product.m, product.n), product.result.numpy)
    types = (product.operands, product.operands, product.result)
    sizes = (product.m, product.k, product.n)
    kernel = DotKernel.planned(product.batch, sizes, types)
    assert kernel is not None
    compute = kernel.compute
    scratch = tuple(np.zeros(dims, compute.numpy) for dims in kernel.scratch_dims())
    arrays = KernelArrays((lhs, rhs), (out,), scratch)
    work: dict[str, Work] = {"ours": NUMPY_KERNELS.bind(kernel, arrays)}
    work["numpy"] = (
        partial(np.matmul, lhs, rhs, out=out) if compute.is_integer else by_numpy(kernel, arrays)
    )
    if importlib.util.find_spec("jax") is not None:
        work["xla"] = by_xla(product, lhs, rhs)
    return work


def by_xla(product: Product, lhs: np.ndarray[Any, Any], rhs: np.ndarray[Any, Any]) -> Work:
    import jax

    batch = tuple(range(len(product.batch)))
    rank = len(batch)
    contracting = tuple(
        (rank + side) for side in (int(product.turned[0] == "N"), int(product.turned[1] == "T"))
    )
    lying = [
        jax.numpy.asarray(np.swapaxes(x, -1, -2) if turned == "T" else x)
        for x, turned in zip((lhs, rhs), product.turned, strict=True)
    ]
    dimensions = (((contracting[0],), (contracting[1],)), (batch, batch))
    product_of = jax.jit(
        lambda x, y: jax.lax.dot_general(
            x, y, dimensions, preferred_element_type=product.result.numpy
        )
    )
    return lambda: product_of(*lying).block_until_ready()


def measure(product: Product, rounds: int) -> dict[str, float]:
    """Seconds of one product, by who makes it."""
    times = max(1, int(2e6 / (product.flops / 50 + 2000)))
    return least_seconds(work_of(product), rounds, times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*PRODUCTS, []], help="all without any")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    set_blas_threads(1)
    environment = describe_environment()
    print(json.dumps(environment))
    print(f"{'product':20s} {'us':>10s} {'GFLOP/s':>8s} {'/ NumPy':>8s} {'/ XLA':>8s}")
    figures = {}
    for name in options.names or PRODUCTS:
        least = figures[name] = measure(PRODUCTS[name], options.rounds)
        ours, xla = least["ours"], least.get("xla", math.nan)
        print(
            f"{name:20s} {1e6 * ours:10.1f} {PRODUCTS[name].flops / ours / 1e9:8.1f} "
            f"{ours / least['numpy']:8.2f} {ours / xla:8.2f}",
            flush=True,
        )
    if options.json:
        figures_of = {"environment": environment, "seconds": figures}
        options.json.write_text(json.dumps(figures_of, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())
