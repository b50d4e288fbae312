"""Elementwise kernels, reductions and rows beside XLA CPU's on one core, alternating in one run, with the copy's limit.

    python benchmarks/kernels.py [NAMES] [--rounds 20] [--json FILE]

Each JAX function goes through both compilers whole, and is timed step after step on arrays that stay where they are;
arguments that a training step would donate are donated. Figures are medians. limit: the bytes that must be read and
written, at the bandwidth of a copy of 128 MB measured between the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

import spmd
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.report.environment import describe_environment

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Case:
    """``donated``: that many arguments are the first results of the step before."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    donated: int = 0
    dtype: str = "float32"

    def arrays(self) -> Arrays:
        rng = np.random.default_rng(0)
        if self.dtype == "int32":
            return tuple(rng.integers(-100, 100, shape).astype(np.int32) for shape in self.shapes)
        return tuple(rng.random(shape, np.float32) for shape in self.shapes)


def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v


def layernorm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    variance = (centred * centred).mean(1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


MATRIX = (4096, 1024)
SQUARE = (2048, 2048)
CASES = {
    "adam 4M": Case(adam, ((1 << 22,),) * 4, donated=3),
    "layernorm": Case(layernorm, (MATRIX, MATRIX[1:], MATRIX[1:])),
    "softmax": Case(lambda x: jax.nn.softmax(x, axis=1), (MATRIX,)),
    "log-softmax": Case(lambda x: jax.nn.log_softmax(x, axis=1), (MATRIX,)),
    "bias gelu": Case(lambda x, b: jax.nn.gelu(x + b, approximate=True), (MATRIX, MATRIX[1:])),
    "transpose": Case(lambda x: x.T + 0.0 * x, (SQUARE,)),
    "transpose add": Case(lambda x, y: x + y.T, (SQUARE, SQUARE)),
    "column sums": Case(lambda x: (x * x).sum(0), (MATRIX,)),
    "row sums": Case(lambda x: (x * x).sum(1), (MATRIX,)),
    "all sums": Case(lambda x: (x * x).sum(), (MATRIX,)),
    "row maxima": Case(lambda x: x.max(1), (MATRIX,)),
    "short row sums": Case(lambda x: x.sum(1), ((1 << 17, 32),)),
    "integer maxima": Case(lambda x: jnp.abs(x).max(0), (MATRIX,), dtype="int32"),
}


class Copy:
    """A copy far beyond the caches, for the bandwidth now."""

    def __init__(self) -> None:
        self.source = np.ones(1 << 24, np.float32)
        self.target = np.ones_like(self.source)

    def seconds(self) -> float:
        return timed(lambda: np.copyto(self.target, self.source))

    @property
    def moved(self) -> int:
        return 2 * self.source.nbytes


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def ours(case: Case, arrays: Arrays, jitted: Any) -> tuple[Callable[[], None], list[np.ndarray]]:
    """A step, and what the first one gives."""
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


def measure(name: str, rounds: int, copy: Copy) -> dict[str, Any]:
    case = CASES[name]
    arrays = case.arrays()
    jitted = jax.jit(case.function, donate_argnums=tuple(range(case.donated)))
    mine, got = ours(case, arrays, jitted)
    peer, wanted = theirs(case, arrays, jitted)
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    for _ in range(3):
        mine()
        peer()
    times = [(timed(mine), timed(peer), copy.seconds()) for _ in range(rounds)]
    a, b, c = (statistics.median(column) for column in zip(*times, strict=True))
    moved = sum(x.nbytes for x in arrays) + sum(x.nbytes for x in wanted)
    return {
        "kernel": name,
        "ours_ms": 1e3 * a,
        "xla_ms": 1e3 * b,
        "ratio": statistics.median(x / y for x, y, _ in times),
        "limit_ms": 1e3 * moved * c / copy.moved,
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
    print(f"{'kernel':16s} {'ours ms':>9s} {'XLA ms':>9s} {'ratio':>6s} {'limit ms':>9s}")
    rows = []
    copy = Copy()
    for name in options.names or CASES:
        row = measure(name, options.rounds, copy)
        rows.append(row)
        print(
            f"{name:16s} {row['ours_ms']:9.3f} {row['xla_ms']:9.3f} {row['ratio']:6.2f} "
            f"{row['limit_ms']:9.3f}",
            flush=True,
        )
    mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean of the ratios {mean:.2f}, largest {max(r['ratio'] for r in rows):.2f}")
    if options.json:
        options.json.write_text(json.dumps({"environment": environment, "kernels": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
