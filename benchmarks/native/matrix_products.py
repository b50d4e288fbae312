"""Products of matrices on one core beside np.matmul and XLA CPU (where jax is installed), in turn in one run.

    python -m benchmarks.native.matrix_products [NAMES] [--rounds 15] [--json FILE]

The process keeps to one core: XLA multiplies on a thread of every core that it sees, whatever its flags say. Ours is
the native action that a dot becomes, on operands as they lie (T: the matrix lies by column). Figures are the least of
the rounds; np.matmul has no bf16, and none of s8 into s32 that is fast: there NumPy stands for the same kernel without
native code. BLAS stands for the same kernel without the processor's tile unit.

    python -m benchmarks.native.matrix_products --errors

prints how far f32 products are from those in f64, beside OpenBLAS's: the largest and the mean of
|error| / (2^-24 sum |a||b|), over the elements of products of several sizes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import runtime.cpu.kernels  # noqa: F401 - fills the library
from benchmarks.native.tile_unit_off import without_tile_unit
from benchmarks.timing.turns import Work, least_seconds
from benchmarks.timing.xla_flags import ONE_THREAD
from launch.report.environment import describe_environment
from runtime.cpu.kernels.gemm.choose import plan_dot
from runtime.cpu.kernels.gemm.dot import by_numpy
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.libraries.blas import set_blas_threads
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.dot import DotKernel
from spmd.shape import PrimitiveType

P = PrimitiveType
Array = np.ndarray[Any, Any]


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

    def matrix(self, which: int) -> Array:
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
    "512x256x512": Product(512, 256, 512),
    "512x256x512 bf16": Product(512, 256, 512, operands=P.BF16, result=P.BF16),
    "512x256x512 bf16 f32": Product(512, 256, 512, operands=P.BF16),
    "512 cube bf16": Product(512, 512, 512, operands=P.BF16, result=P.BF16),
    "512 cube s8 s32": Product(512, 512, 512, operands=P.S8, result=P.S32),
    "256 cube s32": Product(256, 256, 256, operands=P.S32, result=P.S32),
}


def work_of(product: Product) -> dict[str, Work]:
    lhs, rhs = product.matrix(0), product.matrix(1)
    out = np.zeros((*product.batch, product.m, product.n), product.result.numpy)
    types = (product.operands, product.operands, product.result)
    sizes = (product.m, product.k, product.n)
    kernel = plan_dot(product.batch, sizes, types)
    assert kernel is not None
    work: dict[str, Work] = {"ours": bound(kernel, lhs, rhs, out)}
    with without_tile_unit():
        plain = replace(kernel, on_tiles=False)
        work["blas"] = bound(plain, lhs, rhs, out)
    work["numpy"] = (
        partial(np.matmul, lhs, rhs, out=out)
        if plain.compute.is_integer
        else by_numpy(plain, with_scratch(plain, lhs, rhs, out))
    )
    if importlib.util.find_spec("jax") is not None:
        work["xla"] = by_xla(product, lhs, rhs)
    return work


def with_scratch(kernel: DotKernel, lhs: Array, rhs: Array, out: Array) -> KernelArrays:
    scratch = tuple(np.zeros(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    return KernelArrays((lhs, rhs), (out,), scratch)


def bound(kernel: DotKernel, lhs: Array, rhs: Array, out: Array) -> Work:
    return CPU_KERNELS.bind(kernel, with_scratch(kernel, lhs, rhs, out))


def by_xla(product: Product, lhs: Array, rhs: Array) -> Work:
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


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.uniform(0, 1, shape)


def wide_exponents(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)


def cancelling(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Sums of products nearly cancel: even depths and odd ones, as lhs; an rhs that repeats them alike."""
    once = rng.standard_normal((shape[0], shape[1] // 2))
    return np.concatenate([once, -once * (1 + 1e-6)], axis=1)


def denormal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Some of the numbers."""
    return np.where(rng.random(shape) < 0.5, 2.0**-149 * rng.integers(0, 999, shape), 1.0)


def large(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Some numbers whose products are beyond what the tile unit is given."""
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 1e-3, 2.0**55, 1.0)


OPERANDS = (normal, positive, wide_exponents, cancelling, denormal, large)
ERROR_SIZES = ((128, 128, 128), (512, 512, 512), (200, 5000, 300), (1024, 64, 1024))


def print_errors() -> None:
    print(f"{'operands':16s} {'m k n':>16s} {'largest':>9s} {'BLAS':>9s} {'mean':>9s} {'BLAS':>9s}")
    for kind in OPERANDS:
        for m, k, n in ERROR_SIZES:
            rng = np.random.default_rng(0)
            lhs, rhs = kind(rng, (m, k)).astype(np.float32), rng.standard_normal((k, n))
            rhs = np.concatenate([rhs[: k // 2]] * 2) if kind is cancelling else kind(rng, (k, n))
            found = errors(lhs, rhs.astype(np.float32))
            figures = [measure(one) for measure in (np.max, np.mean) for one in found]
            print(f"{kind.__name__:16s} {f'{m} {k} {n}':>16s}", *(f"{x:9.3f}" for x in figures))


def errors(lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Element by element, ours and OpenBLAS's, as the module says."""
    (m, k), n = lhs.shape, rhs.shape[1]
    kernel = plan_dot((), (m, k, n), (P.F32, P.F32, P.F32))
    assert kernel is not None
    ours, blas = (np.zeros((m, n), np.float32) for _ in range(2))
    bound(kernel, lhs, rhs, ours)()
    with without_tile_unit():
        bound(kernel, lhs, rhs, blas)()
    a, b = lhs.astype(np.float64), rhs.astype(np.float64)
    unit = 2.0**-24 * np.maximum(np.abs(a) @ np.abs(b), 2.0**-126)
    exact = a @ b
    return np.abs(ours - exact) / unit, np.abs(blas - exact) / unit


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*PRODUCTS, []], help="all without any")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--errors", action="store_true", help="errors instead of times")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    set_blas_threads(1)
    environment = describe_environment()
    print(json.dumps({**environment, "tile_unit": has_tile_unit()}))
    if options.errors:
        print_errors()
        return 0
    columns = ("us", "GFLOP/s", "/ BLAS", "/ NumPy", "/ XLA")
    print(f"{'product':20s}", *(f"{column:>9s}" for column in columns))
    figures = {}
    for name in options.names or PRODUCTS:
        least = figures[name] = measure(PRODUCTS[name], options.rounds)
        ours, xla = least["ours"], least.get("xla", math.nan)
        print(
            f"{name:20s} {1e6 * ours:9.1f} {PRODUCTS[name].flops / ours / 1e9:9.1f}",
            *(f"{ours / peer:9.2f}" for peer in (least["blas"], least["numpy"], xla)),
            flush=True,
        )
    if options.json:
        figures_of = {"environment": environment, "seconds": figures}
        options.json.write_text(json.dumps(figures_of, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.exit(main())
