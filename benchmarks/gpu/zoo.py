"""Programs of the zoo on one GPU: outputs and step times beside JAX's own on the same GPU.

    python -m benchmarks.gpu.zoo [NAMES] [--rounds 10] [--json FILE] [--double]

All programs that the installed libraries can build are run on one device, f32 products in f32 on both sides. Outputs
are judged as the zoo judges them: beside JAX's, with what inputs moved by a unit in the last place do to these, and by
evaluations with noise; what is the evaluator's and not JAX's is said. `off` is the largest difference that rounding
does not explain, in tolerances. The exit status is 1 if a program is wrong or fails. --part K/N takes every Nth
program. --double computes on a double of a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.gpu.peers import environment, forms, make_driver
from benchmarks.zoo.build import Prepared, nudged
from benchmarks.zoo.judge import Ran, nearest, question
from benchmarks.zoo.registry import builder_of, names
from launch.checks.expect import Expected, Verdict, check_output
from launch.checks.verdicts import explain_by_rounding
from launch.entry import Entry
from launch.job import JobResult
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.engine_choice import gpu_options
from launch.target.machine_option import machine_for
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from spmd.evaluator.evaluator import evaluate
from spmd.text.parser import parse_module

#: Seconds after which no further evaluation with noise begins.
JUDGE_SECONDS = 20.0


def measure(name: str, driver: GpuDriver, rounds: int) -> dict[str, Any]:
    """Run a program ``rounds`` times by both. Raises what building or running it raises."""
    prepared = Prepared.of(builder_of(name)(1))
    arrays = prepared.placed.arrays
    runs = [prepared.run(arrays), prepared.run(nudged(arrays))]
    text = prepared.lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    module = parse_module(text)
    begin = time.perf_counter()
    executable = compile_module(module, 1, CompileOptions(machine=machine_for(None, backend="gpu")))
    executable.engine = GpuEngine(lambda _: driver, launch_maker, gpu_options())
    inputs = [arrays[number] for number in prepared.parameters()]
    outputs = executable.run(*inputs)
    seconds = time.perf_counter() - begin
    entry = Entry.of_module(module)
    pairs = [
        nearest(got, f"out{n}", shape, [first, first, moved])
        for n, (got, shape, first, moved) in enumerate(
            zip(outputs, entry.outputs, *runs, strict=True)
        )
    ]
    result = JobResult(list(outputs), [], [check for check, _ in pairs])
    if not result.ok:
        asked = replace(question(Ran(module, entry, 1, inputs, outputs)), seconds=JUDGE_SECONDS)
        result = explain_by_rounding(result, [one for _, one in pairs], asked, lambda _: None)
    unlike_jax = [n for n, check in enumerate(result.checks) if not check.ok]
    meant = evaluate(module, *inputs) if unlike_jax else []
    wrong = [n for n in unlike_jax if not _agrees(outputs[n], meant[n], pairs[n][1])]
    took = []
    for _ in range(rounds + 2):  # one by one, captured, replayed
        state = executable.put(inputs)
        begin = time.perf_counter()
        executable.run(state)
        took.append(time.perf_counter() - begin)
    within = [check for check in result.checks if check.verdict is not Verdict.ROUNDING]
    return {
        "off": max((check.of_tolerance for check in within), default=0.0),
        "rounding": [c.name for c in result.checks if c.verdict is Verdict.ROUNDING],
        "unlike_jax": [f"out{n}" for n in unlike_jax if n not in wrong],
        "wrong": [f"out{n}" for n in wrong],
        "compile_s": seconds,
        "jax_compile_s": prepared.seconds,
        "ms": 1e3 * statistics.median(took[2:]),
        "jax_ms": prepared.step_ms(),
        "kernels": forms(executable),
    }


def _agrees(got: np.ndarray, meant: np.ndarray, expected: Expected) -> bool:
    """Return whether an output is the evaluator's, which XLA's need not be: it may leave roundings out."""
    return check_output(got, replace(expected, values=meant)).ok


def described(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name:24s} {row['error'][:120]}"
    hosted = row["kernels"]["hosted"]
    by_host = f"  by the host: {', '.join(sorted({kind for kind, _ in hosted}))}" if hosted else ""
    if row["unlike_jax"]:
        by_host += f"  the evaluator's, not JAX's: {', '.join(row['unlike_jax'][:4])}"
    wrong = f"  WRONG: {', '.join(row['wrong'][:4])}" if row["wrong"] else ""
    return (
        f"{name:24s} step {row['ms']:8.3f} ms, jax {row['jax_ms']:8.3f}  compile {row['compile_s']:5.1f} s, "
        f"jax {row['jax_compile_s']:5.1f}  off {row['off']:8.2g}{by_host}{wrong}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of the zoo's programs (default: all)")
    parser.add_argument("--part", default="0/1", metavar="K/N", help="of the programs (0/1: all)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--double", action="store_true", help="compute on a double of a GPU")
    options = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", "highest")
    driver = make_driver(double=options.double)
    rows: dict[str, dict[str, Any]] = {}
    print(json.dumps(environment(driver)))
    part, parts = map(int, options.part.split("/"))
    for name in (options.names or names())[part::parts]:
        try:
            rows[name] = measure(name, driver, options.rounds)
        except ModuleNotFoundError as error:
            rows[name] = {"missing": str(error), "error": f"not built: {error}"}
        except Exception as error:  # a table of all programs says what fails  # noqa: BLE001
            rows[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(described(name, rows[name]), flush=True)
        if options.json is not None:
            content = {"environment": environment(driver), "programs": rows}
            options.json.write_text(json.dumps(content, indent=1) + "\n")
    ran = [row for row in rows.values() if "ms" in row]
    if ran:
        ratio = np.exp(np.mean([np.log(row["ms"] / row["jax_ms"]) for row in ran]))
        print(f"{len(ran)} of {len(rows)} programs ran; step {ratio:.2f} of JAX's in the mean")
    failed = [
        row for row in rows.values() if "missing" not in row and ("error" in row or row["wrong"])
    ]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
