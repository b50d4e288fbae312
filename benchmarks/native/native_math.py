"""Time the native element functions beside NumPy's and, where jax is installed, XLA CPU's; each on one thread.

    python -m benchmarks.native.native_math [--only REGEX] [--types f32,f64,bf16] [--elements N] [--rounds 15] [--json
    FILE]

One array in (or two), one out, in memory that stays the same. The three take turns; figures are nanoseconds per element
of each one's best round (a shared machine adds to all others), ratios those of the best rounds, and the processor time
in which the native kernel is compiled without cached machine code. NumPy's is the reference evaluator.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing.turns import Work, geometric_mean, in_turns, least_seconds
from benchmarks.timing.xla_flags import ONE_THREAD
from launch.report.environment import describe_environment
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.evaluator import elementwise as _elementwise  # noqa: F401 - registers the functions
from spmd.evaluator.numerics import quiet
from spmd.evaluator.registry import EVALUATORS
from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape, PrimitiveType

#: Opcode and the name of jax's function.
FUNCTIONS = {
    Opcode.ADD: "add",
    Opcode.MULTIPLY: "mul",
    Opcode.DIVIDE: "div",
    Opcode.SQRT: "sqrt",
    Opcode.RSQRT: "rsqrt",
    Opcode.CBRT: "cbrt",
    Opcode.EXPONENTIAL: "exp",
    Opcode.EXPONENTIAL_MINUS_ONE: "expm1",
    Opcode.LOG: "log",
    Opcode.LOG_PLUS_ONE: "log1p",
    Opcode.LOGISTIC: "logistic",
    Opcode.TANH: "tanh",
    Opcode.ERF: "erf",
    Opcode.SINE: "sin",
    Opcode.COSINE: "cos",
    Opcode.TAN: "tan",
    Opcode.ASIN: "asin",
    Opcode.ACOS: "acos",
    Opcode.SINH: "sinh",
    Opcode.COSH: "cosh",
    Opcode.ASINH: "asinh",
    Opcode.ACOSH: "acosh",
    Opcode.ATANH: "atanh",
    Opcode.ATAN2: "atan2",
    Opcode.POWER: "pow",
}
TWO = {Opcode.ADD, Opcode.MULTIPLY, Opcode.DIVIDE, Opcode.ATAN2, Opcode.POWER}
Array = np.ndarray[Any, Any]


def operands_of(opcode: Opcode, kind: PrimitiveType, count: int) -> list[Array]:
    """Inside the function's domain, of everyday size."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(count) for _ in range(2 if opcode in TWO else 1)]
    if opcode in (Opcode.ACOS, Opcode.ASIN, Opcode.ATANH):
        arrays = [rng.uniform(-0.99, 0.99, count)]
    elif opcode in (Opcode.LOG, Opcode.SQRT, Opcode.RSQRT, Opcode.POWER, Opcode.LOG_PLUS_ONE):
        arrays[0] = np.abs(arrays[0])
    elif opcode is Opcode.ACOSH:
        arrays = [1 + np.abs(arrays[0])]
    return [x.astype(kind.numpy) for x in arrays]


def native_run(opcode: Opcode, kind: PrimitiveType, operands: list[Array]) -> tuple[Work, float]:
    """The call and the milliseconds in which it was compiled."""
    signature = ElementSignature(opcode, (kind,) * len(operands), kind)
    start = time.thread_time()
    run = bind_operation(signature, operands, np.empty_like(operands[0]))
    return run, 1e3 * (time.thread_time() - start)


def numpy_run(opcode: Opcode, kind: PrimitiveType, operands: list[Array]) -> Work:
    instruction = HloInstruction(opcode, ArrayShape(kind, operands[0].shape))

    def run() -> None:
        with quiet():
            EVALUATORS[opcode](instruction, tuple(operands))

    return run


def jax_run(name: str, operands: list[Array]) -> Work | None:
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", val=True)
    function = jax.jit(getattr(jax.lax, name))
    arrays = [jax.device_put(x) for x in operands]
    return lambda: function(*arrays).block_until_ready()


def measure(opcode: Opcode, kind: PrimitiveType, count: int, rounds: int) -> dict[str, Any]:
    operands = operands_of(opcode, kind, count)
    run, compile_ms = native_run(opcode, kind, operands)
    runs = {"native": run, "numpy": numpy_run(opcode, kind, operands)}
    if (peer := jax_run(FUNCTIONS[opcode], operands)) is not None:
        runs["xla"] = peer
    in_turns(runs, 2)
    times = least_seconds(runs, rounds, 1 if count > 1000 else 100)
    row: dict[str, Any] = {"function": opcode.value, "type": kind.value, "compile_ms": compile_ms}
    for name, found in times.items():
        row[f"{name}_ns"] = 1e9 * found / count
        row[f"to_{name}"] = times["native"] / found
    size = kind.byte_size * (len(operands) + 1)
    row["native_gb_s"] = size / row["native_ns"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="opcodes that match this expression")
    parser.add_argument("--types", default="f32,f64,bf16")
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    print(json.dumps(environment))
    print(
        f"{'function':22s} {'type':5s} {'ns/element':>10s} {'GB/s':>6s} {'NumPy ns':>9s} {'XLA ns':>7s}"
        f" {'to NumPy':>8s} {'to XLA':>7s} {'compile ms':>10s}"
    )
    rows = []
    for kind in map(PrimitiveType, options.types.split(",")):
        for opcode in FUNCTIONS:
            if not re.search(options.only, opcode.value):
                continue
            row = measure(opcode, kind, options.elements, options.rounds)
            rows.append(row)
            print(
                f"{row['function']:22s} {row['type']:5s} {row['native_ns']:10.3f} {row['native_gb_s']:6.1f}"
                f" {row['numpy_ns']:9.3f} {row.get('xla_ns', math.nan):7.3f} {row['to_numpy']:8.3f}"
                f" {row.get('to_xla', math.nan):7.3f} {row['compile_ms']:10.1f}",
                flush=True,
            )
    for peer in ("numpy", "xla"):
        ratios = [row[f"to_{peer}"] for row in rows if f"to_{peer}" in row]
        if ratios:
            print(
                f"geometric mean to {peer}: {geometric_mean(ratios):.3f}, largest {max(ratios):.3f}"
            )
    if options.json:
        options.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())
