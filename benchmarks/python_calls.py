"""List thunks that still need Python: kernels without native code, which end the run of a segment.

    python -m benchmarks.python_calls CASES [--only REGEX] [--plain]

CASES is a folder of cases (module.hlo, case.json): each is compiled and loaded, with fusion unless --plain. Printed are
kernels of all devices' programs and of these the ones that need Python.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from unittest.mock import patch

from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.source import load_module
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.kernels.native_call import NativeAction
from runtime.executable import Executable
from runtime.program.kernel import CPU_KERNELS, Action, Kernel, KernelArrays, KernelLibrary
from runtime.program.records.reference import ReferenceKernel


class WatchedKernels(KernelLibrary):
    """The library, which takes down what is bound to Python."""

    def __init__(self) -> None:
        super().__init__("watched kernels")
        self.bound = 0
        self.python: Counter[str] = Counter()

    def bind(self, kernel: Kernel, arrays: KernelArrays) -> Action:
        action = CPU_KERNELS.bind(kernel, arrays)
        self.bound += 1
        if not isinstance(action, NativeAction):
            self.python[_named(kernel, arrays)] += 1
        return action


def _named(kernel: Kernel, arrays: KernelArrays) -> str:
    types = ", ".join(dict.fromkeys(str(x.dtype) for x in (*arrays.operands, *arrays.results)))
    if isinstance(kernel, ReferenceKernel):
        return f"evaluator: {kernel.instruction.opcode} of {types}"
    return f"{type(kernel).__name__} of {types}"


def python_kernels(executable: Executable) -> WatchedKernels:
    watched = WatchedKernels()
    with patch.object(LoadedDevice, "kernels", watched):
        executable.load_local()
    return watched


def report_cases(folder: Path, only: str, *, fusion: bool) -> None:
    where: dict[str, list[str]] = defaultdict(list)
    bound = 0
    for case in sorted(path.parent for path in folder.glob("*/case.json")):
        if not re.search(only, case.name):
            continue
        about = json.loads((case / "case.json").read_text(encoding="utf-8"))
        devices = about["num_partitions"] * about.get("num_replicas", 1)
        module = load_module(str(case / "module.hlo"))
        found = python_kernels(compile_module(module, devices, CompileOptions(fusion=fusion)))
        bound += found.bound
        print(f"{case.name:28s} {found.bound:6d} kernels, {found.python.total():4d} need Python")
        for name, count in sorted(found.python.items()):
            print(f"    {count:4d} {name}", flush=True)
            where[name].append(case.name)
    needy = sum(map(len, where.values()))
    print(f"{bound} kernels; {len(where)} kinds need Python, met in {needy} places")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match")
    parser.add_argument("--plain", action="store_true", help="without fusion")
    options = parser.parse_args()
    report_cases(options.cases, options.only, fusion=not options.plain)
    return 0


if __name__ == "__main__":
    sys.exit(main())
