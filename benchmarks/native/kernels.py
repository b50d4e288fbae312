"""Time kernels (elements, rows, sums, sorts, indices) beside XLA CPU's on one core, in turns, with the limit beside.

    python -m benchmarks.native.kernels [NAMES] [--rounds 20] [--json FILE]

Both compilers compile each JAX function whole, and it is timed step after step on arrays that stay where they are;
arguments that a training step would donate are donated. The process keeps to one core, since XLA would take all of
them. Figures are medians; "least" is the ratio of the best rounds, which others on the machine disturb less. The limit
is the time of a copy of as many bytes as the kernel must read and write, measured after each kernel; "reached" is the
limit over our time. A kernel that writes over its operands, or less than it reads, may go beyond it, since a copy also
fetches the lines that it writes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from typing import Any

from benchmarks.timing.xla_flags import ONE_THREAD

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ.update(ONE_THREAD)

import jax
import jax.numpy as jnp
import numpy as np

import spmd
from benchmarks.timing.turns import geometric_mean, in_turns, seconds
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.environment import describe_environment

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Argument:
    """Random numbers: floats below 1, integers from -100 to 99, or, with a ``limit``, indices below that."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    limit: int | None = None

    def array(self, rng: np.random.Generator) -> np.ndarray:
        if self.limit is not None:
            return rng.integers(0, self.limit, self.shape).astype(self.dtype)
        if self.dtype.startswith("int"):
            return rng.integers(-100, 100, self.shape).astype(self.dtype)
        return rng.random(self.shape, np.float32).astype(jnp.dtype(self.dtype))


@dataclass(frozen=True)
class Case:
    """A function that both compilers compile, and its arguments.

    The first ``donated`` arguments are the first results of the step before. ``touched`` are the bytes that are read
    and written, where these are not all of arguments and results. ``named`` marks the ten kernels of the geometric
    mean.
    """

    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    donated: int = 0
    touched: int | None = None
    named: bool = False

    def arrays(self) -> Arrays:
        rng = np.random.default_rng(0)
        return tuple(argument.array(rng) for argument in self.arguments)


def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v


def layernorm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    variance = (centred * centred).mean(1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def pooled(x: Any) -> Any:
    """Return the maxima of windows of 3 x 3, two apart, of an array [batch, height, width, channels]."""
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )


def pooled_gradient(x: Any) -> Any:
    return jax.grad(lambda y: pooled(y).sum())(x)


MATRIX = Argument((4096, 1024))
ROW = Argument((1024,))
SQUARE = Argument((2048, 2048))
LINE = Argument((1 << 20,))
IMAGES = Argument((8, 56, 56, 64))
TABLE = Argument((50_000, 256))
TOKENS = Argument((8192,), "int32", limit=50_000)
BINS = Argument((1 << 18,), "int32", limit=4096)
HEADS = Argument((8, 1024, 16, 64))
#: Bytes of a row of the table for each token.
TOKEN_BYTES = 8192 * 256 * 4
CASES = {
    "adam 4M": Case(adam, (Argument((1 << 22,)),) * 4, donated=3, named=True),
    "layernorm": Case(layernorm, (MATRIX, ROW, ROW), named=True),
    "softmax": Case(lambda x: jax.nn.softmax(x, axis=1), (MATRIX,), named=True),
    "bias gelu": Case(lambda x, b: jax.nn.gelu(x + b, approximate=True), (MATRIX, ROW), named=True),
    "transpose": Case(lambda x: x.T, (SQUARE,), named=True),
    "column sums": Case(lambda x: (x * x).sum(0), (MATRIX,), named=True),
    "cumsum": Case(lambda x: jnp.cumsum(x, axis=1), (MATRIX,), named=True),
    "sort 1M": Case(jnp.sort, (LINE,), named=True),
    "scatter-add": Case(
        lambda t, i, u: t.at[i].add(u),
        (TABLE, TOKENS, Argument((8192, 256))),
        donated=1,
        touched=3 * TOKEN_BYTES,
        named=True,
    ),
    "embedding": Case(lambda t, i: t[i], (TABLE, TOKENS), touched=2 * TOKEN_BYTES, named=True),
    "log-softmax": Case(lambda x: jax.nn.log_softmax(x, axis=1), (MATRIX,)),
    "transpose scaled": Case(lambda x: x.T + 0.0 * x, (SQUARE,)),
    "transpose add": Case(lambda x, y: x + y.T, (SQUARE, SQUARE)),
    "transpose heads": Case(lambda x: x.transpose(0, 2, 1, 3), (HEADS,)),
    "transpose bf16": Case(lambda x: x.T, (Argument((2048, 2048), "bfloat16"),)),
    "row sums": Case(lambda x: (x * x).sum(1), (MATRIX,)),
    "all sums": Case(lambda x: (x * x).sum(), (MATRIX,)),
    "row maxima": Case(lambda x: x.max(1), (MATRIX,)),
    "short row sums": Case(lambda x: x.sum(1), (Argument((1 << 17, 32)),)),
    "integer maxima": Case(lambda x: jnp.abs(x).max(0), (Argument((4096, 1024), "int32"),)),
    "argmax": Case(lambda x: jnp.argmax(x, axis=1), (MATRIX,)),
    "cumsum columns": Case(lambda x: jnp.cumsum(x, axis=0), (MATRIX,)),
    "cumsum 1M": Case(jnp.cumsum, (LINE,)),
    "cummax": Case(lambda x: jax.lax.cummax(x, axis=1), (MATRIX,)),
    "sort rows": Case(lambda x: jnp.sort(x, axis=1), (MATRIX,)),
    "sort columns": Case(lambda x: jnp.sort(x, axis=0), (Argument((1024, 512)),)),
    "sort s32": Case(jnp.sort, (Argument((1 << 20,), "int32", limit=1 << 30),)),
    "argsort 1M": Case(jnp.argsort, (LINE,)),
    "top 8 of rows": Case(lambda x: jax.lax.top_k(x, 8), (Argument((1024, 1024)),)),
    "histogram": Case(lambda i: jnp.zeros(4096, jnp.int32).at[i].add(1), (BINS,)),
    "take elements": Case(lambda x, i: x[i], (LINE, Argument((1 << 20,), "int32", 1 << 20))),
    "pool": Case(pooled, (IMAGES,)),
    "pool gradient": Case(pooled_gradient, (IMAGES,)),
    "pad": Case(lambda x: jnp.pad(x, ((1, 1), (3, 5))), (MATRIX,)),
    "concatenate": Case(lambda x, y: jnp.concatenate((x, y), axis=1), (SQUARE, SQUARE)),
    "reverse": Case(lambda x: x[:, ::-1], (MATRIX,)),
    "random bits": Case(
        lambda k: jax.lax.rng_bit_generator(k, (1 << 20,), dtype=jnp.uint32)[1],
        (Argument((4,), "uint32", limit=1 << 30),),
    ),
    "random uniform": Case(
        lambda k: jax.random.uniform(k, (1 << 20,)), (Argument((2,), "uint32", limit=1 << 30),)
    ),
    "bias gelu bf16": Case(
        lambda x, b: jax.nn.gelu(x + b, approximate=True),
        (Argument((4096, 1024), "bfloat16"), Argument((1024,), "bfloat16")),
    ),
    "softmax bf16": Case(
        lambda x: jax.nn.softmax(x, axis=1), (Argument((4096, 1024), "bfloat16"),)
    ),
    "complex product": Case(
        lambda x, y: x * y + x,
        (Argument((1 << 20,), "complex64"), Argument((1 << 20,), "complex64")),
    ),
    "complex exp": Case(lambda x: jnp.exp(x), (Argument((1 << 18,), "complex64"),)),
    "complex sums": Case(lambda x: (x * x).sum(1), (Argument((1024, 1024), "complex64"),)),
    "fft rows": Case(jnp.fft.fft, (Argument((1024, 1024), "complex64"),)),
    "fft columns": Case(lambda x: jnp.fft.fft(x, axis=0), (Argument((1024, 512), "complex64"),)),
    "rfft 2D": Case(jnp.fft.rfft2, (Argument((8, 256, 256)),)),
    "cholesky": Case(
        lambda x: jnp.linalg.cholesky(x @ x.T + 512 * jnp.eye(512)), (Argument((512, 512)),)
    ),
    "cholesky many": Case(
        lambda x: jnp.linalg.cholesky(x @ x.transpose(0, 2, 1) + 16 * jnp.eye(16)),
        (Argument((512, 16, 16)),),
    ),
    "triangular solve": Case(
        lambda a, b: jax.scipy.linalg.solve_triangular(a + 512 * jnp.eye(512), b, lower=True),
        (Argument((512, 512)), Argument((512, 256))),
    ),
    "f8 sums": Case(
        lambda x, y: x + y,
        (Argument((1 << 20,), "float8_e4m3fn"), Argument((1 << 20,), "float8_e4m3fn")),
    ),
}


def copy_seconds(moved: int, rounds: int) -> float:
    """Return the seconds of a copy that reads and writes ``moved`` bytes together."""
    source = np.ones(max(moved // 2, 1), np.uint8)
    target = np.ones_like(source)
    return statistics.median(seconds(lambda: np.copyto(target, source)) for _ in range(rounds))


def ours(case: Case, arrays: Arrays, jitted: Any) -> tuple[Callable[[], None], list[np.ndarray]]:
    """Return a function that runs one step, and the results of the first step."""
    text = jitted.lower(*arrays).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    executable = compile_module(spmd.parse(text), 1, CompileOptions(fusion=True))
    first = executable.run(*arrays)
    state = [executable.put(arrays)]

    def step() -> None:
        results = executable.run(state[0])
        if case.donated:
            state[0] = results[: case.donated] + state[0][case.donated :]

    return step, first


def theirs(case: Case, arrays: Arrays, jitted: Any) -> tuple[Callable[[], None], list[np.ndarray]]:
    first = [np.asarray(x) for x in jax.tree.leaves(jitted(*map(jnp.array, arrays)))]
    state = [[jnp.array(x) for x in arrays]]

    def step() -> None:
        results = jax.block_until_ready(jax.tree.leaves(jitted(*state[0])))
        if case.donated:
            state[0] = [*results[: case.donated], *state[0][case.donated :]]

    return step, first


def assert_close(got: np.ndarray, wanted: np.ndarray) -> None:
    if not jnp.issubdtype(wanted.dtype, jnp.inexact):
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = max(1e-4, 2 * float(jnp.finfo(wanted.dtype).eps))
    exact = np.complex128 if jnp.issubdtype(wanted.dtype, jnp.complexfloating) else np.float64
    np.testing.assert_allclose(
        got.astype(exact), wanted.astype(exact), rtol=tolerance, atol=tolerance / 10
    )


def measure(name: str, rounds: int) -> dict[str, Any]:
    case = CASES[name]
    arrays = case.arrays()
    jitted = jax.jit(case.function, donate_argnums=tuple(range(case.donated)))
    mine, got = ours(case, arrays, jitted)
    peer, wanted = theirs(case, arrays, jitted)
    for x, y in zip(got, wanted, strict=True):
        assert_close(x, y)
    for _ in range(3):
        mine()
        peer()
    times = in_turns({"ours": mine, "xla": peer}, rounds)
    moved = case.touched or sum(x.nbytes for x in (*arrays, *wanted))
    return {
        "kernel": name,
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "xla_ms": 1e3 * statistics.median(times["xla"]),
        "named": case.named,
        "ratio": statistics.median(map(truediv, times["ours"], times["xla"])),
        "least_ratio": min(times["ours"]) / min(times["xla"]),
        "limit_ms": 1e3 * copy_seconds(moved, rounds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    print(json.dumps(environment))
    print(
        f"{'kernel':16s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'least':>6s} {'limit ms':>9s} {'reached':>7s}"
    )
    rows = []
    for name in options.names or CASES:
        row = measure(name, options.rounds)
        rows.append(row)
        print(
            f"{name:16s} {row['ours_ms']:9.3f} {row['xla_ms']:9.3f} {row['ratio']:6.2f} "
            f"{row['least_ratio']:6.2f} {row['limit_ms']:9.3f} {row['limit_ms'] / row['ours_ms']:7.2f}",
            flush=True,
        )
    named = [row for row in rows if row["named"]]
    for what, ratios in (
        ("ten kernels, medians", [row["ratio"] for row in named]),
        ("ten kernels, least", [row["least_ratio"] for row in named]),
        ("all, medians", [row["ratio"] for row in rows]),
        ("all, least", [row["least_ratio"] for row in rows]),
    ):
        if ratios:
            print(
                f"{what}: geometric mean of the ratios {geometric_mean(ratios):.2f}, "
                f"largest {max(ratios):.2f}, "
                f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} above 1"
            )
    if options.json:
        options.json.write_text(json.dumps({"environment": environment, "kernels": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
