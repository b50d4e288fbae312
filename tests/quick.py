"""The tests of `make quick`: a few files of each folder, chosen for how much a broken change fails there.

python -m tests.quick [PYTEST'S OPTIONS]     runs them, and prints what it leaves out
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.paths import TESTS

#: Files of each folder with tests, by their names without `test_` and `.py`; "*.hlo" stands for all text tests there.
CHOSEN: Mapping[str, str] = {
    ".": "hlo_fixture house quick",
    "benchmarks": "",
    "benchmarks/simulation": "more_shards",
    "collectives/communicator": "shared_buffers",
    "collectives/communicator/kinds": "kinds collective_permute",
    "collectives/communicator/liveness": "",
    "collectives/communicator/loopback": "",
    "collectives/communicator/messages": "native_message_actions",
    "collectives/communicator/nccl": "",
    "collectives/communicator/node": "barrier node",
    "collectives/cost": "algorithms intervals",
    "collectives/passes": "groups reduce_scatter_creator reductions_together",
    "collectives/schedule": "checker planted",
    "collectives/simulate": "program simulate",
    "differential": "cases",
    "differential/regressions": "",
    "documents": "documents",
    "fuzz": "",
    "gpu": "",
    "hlo/layouts": "*.hlo",
    "hlo/passes": "",
    "hlo/propagation": "*.hlo",
    "hlo/propagation/jax": "*.hlo",
    "hlo/text": "*.hlo",
    "launch": "donation job public_function",
    "launch/cache": "",
    "launch/calibration": "machine",
    "launch/checks": "expect verdicts",
    "launch/cli": "cli usage",
    "launch/data": "inputs",
    "launch/ranks": "",
    "launch/report": "statistics",
    "launch/report/overlap": "sums text",
    "launch/report/timeline_page": "kinds",
    "launch/stages": "",
    "launch/target": "",
    "mpi": "",
    "mutants": "",
    "partitioner": "",
    "partitioner/annotations": "manual_regions",
    "partitioner/devices": "axes",
    "partitioner/explain": "causes",
    "partitioner/ops": "dot elementwise reduce",
    "partitioner/partition": "",
    "partitioner/propagation": "driver",
    "partitioner/reshard": "steps",
    "runtime": "cases executable layouts",
    "runtime/arrays": "",
    "runtime/buffers": "assignment",
    "runtime/buffers/checker": "",
    "runtime/buffers/heap": "heap",
    "runtime/codegen/elements": "",
    "runtime/codegen/ir": "",
    "runtime/codegen/llvm": "jit object_cache",
    "runtime/codegen/vectorizer": "",
    "runtime/cpu/collective": "",
    "runtime/cpu/kernels": "kernels",
    "runtime/cpu/kernels/convolution": "",
    "runtime/cpu/kernels/copy": "slicing",
    "runtime/cpu/kernels/fft": "",
    "runtime/cpu/kernels/gather_scatter": "",
    "runtime/cpu/kernels/gemm": "",
    "runtime/cpu/kernels/linalg": "",
    "runtime/cpu/kernels/loop": "",
    "runtime/cpu/kernels/random": "",
    "runtime/cpu/kernels/reduce": "",
    "runtime/cpu/kernels/sort": "",
    "runtime/cpu/libraries": "",
    "runtime/cpu/prediction": "reuse_distance",
    "runtime/cpu/sharing": "share",
    "runtime/cpu/step": "",
    "runtime/emit": "row_order",
    "runtime/fusion": "priority_fusion index_maps",
    "runtime/fusion/attention": "",
    "runtime/fusion/cost": "flat_cost",
    "runtime/fusion/products": "",
    "runtime/gpu": "recorder",
    "runtime/gpu/codegen": "emitters",
    "runtime/gpu/cuda": "driver",
    "runtime/gpu/doubles": "",
    "runtime/gpu/triton": "",
    "runtime/layout": "orders",
    "runtime/program": "argument_record",
    "runtime/program/thunks": "segment",
    "runtime/schedule": "split",
    "runtime/timeline": "events",
    "spmd": "builder device_groups iota",
    "spmd/analysis": "attention_mask cost trip_count",
    "spmd/evaluator": "cases collective control_flow dot elementwise reduce",
    "spmd/library_calls": "products",
    "spmd/library_calls/attention": "",
    "spmd/machine": "reader",
    "spmd/op_matrix": "complete examples",
    "spmd/ops": "inference",
    "spmd/passes": "algebraic passes pipeline",
    "spmd/proto": "wire",
    "spmd/text": "errors shape_text",
    "spmd/text/sharding": "sharding_text",
    "spmd/text/sources": "",
    "spmd/verifier": "verify",
}


def files_of(folder: str) -> list[Path]:
    """Return the files with tests that lie in the folder itself; a case's programs are no text tests."""
    found = [*TESTS.joinpath(folder).glob("test_*.py"), *TESTS.joinpath(folder).glob("*.hlo")]
    return sorted(path for path in found if "cases" not in path.parts)


def folders() -> list[str]:
    """Return every folder of this one that holds tests, relative to it."""
    holding = {path.parent for path in TESTS.rglob("*") if path.suffix in (".py", ".hlo")}
    named = sorted(path.relative_to(TESTS).as_posix() for path in holding)
    return [folder for folder in named if files_of(folder)]


def chosen(folder: str) -> Iterator[Path]:
    """Yield the files of a folder that are run, whether they exist or not."""
    for name in CHOSEN[folder].split():
        if name == "*.hlo":
            yield from sorted(TESTS.joinpath(folder).glob(name))
        else:
            yield TESTS / folder / f"test_{name}.py"


def left_out() -> str:
    """Return what is not run, folder by folder: how many of its files with tests, and which where they are few."""
    lines = []
    for folder in folders():
        run, there = set(chosen(folder)), files_of(folder)
        place = f"  tests/{folder}".removesuffix("/.")
        names = [path.stem.removeprefix("test_") for path in there if path not in run]
        if len(names) == len(there):
            lines.append(f"{place}: all {len(there)}")
        elif names:
            line = f"{place}: {len(names)} of {len(there)}: {' '.join(names)}"
            lines.append(textwrap.fill(line, 120, subsequent_indent="    "))
    return "\n".join(lines)


def main(options: list[str]) -> int:
    """Run the tests and return pytest's exit code, once what is left out has been printed."""
    code = pytest.main([*options, *(str(path) for folder in CHOSEN for path in chosen(folder))])
    print(f"== left out (make test runs them, mypy --strict and import contracts):\n{left_out()}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
