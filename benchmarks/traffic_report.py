"""Bytes that kernels read and write in one step of a device, beside XLA CPU's by the same count, case by case.

    python -m benchmarks.traffic_report CORPUS [--only REGEX] [--no-fusion] [--most N] [--json FILE]

Needs module.hlo, peer.hlo and case.json of each case and runs none of them. Every kernel is counted as reading what it
needs of each operand once and writing its results once; loops count their trips where these are known, and conditionals
all branches. Where all readers in a fusion slice or gather an operand, it counts by what they take of it. An operand
that a fusion updates in place does not count, and the result counts by the update. Collectives, and memory that a
kernel needs only while it runs (packed matrices, sorted pairs), are left out on both sides.

XLA's kernels are the instructions of its optimized module outside fusions; views that it makes (``bitcast``, tuples)
move nothing. Ours are the thunks that run, copies for loops and outputs included: a thunk counts by the arrays that it
is given, a repeated element once, or by its instruction as above where that is less. --most lists so many kernels of
either side, those that move most. Exits 1 when the geometric mean is above 0.9.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.timing.described import described
from benchmarks.timing.kernel_bytes import kernel_bytes
from benchmarks.timing.turns import geometric_mean
from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.buffers.types import ArrayView
from runtime.compile import build_executable
from runtime.program.thunks import CopyThunk, KernelThunk, Thunk, WhileThunk
from spmd.analysis.executions import executions
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import CALLERS, WEIGHTLESS
from spmd.text.parser import parse_module

MOST = 0.9
#: Opcodes that move nothing in XLA's optimized module, or are counted by the computations that they call.
_SILENT = WEIGHTLESS | CALLERS | {Opcode.ASYNC_START, Opcode.ASYNC_DONE}


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that one kernel reads and writes in a step, all ``times`` that it runs."""

    kernel: str
    times: int
    each: float

    @property
    def size(self) -> float:
        return self.times * self.each

    def __str__(self) -> str:
        return f"{self.size:14.0f} {self.times:6d}  {self.kernel}"


# ---- XLA's
def peer_kernels(module: HloModule) -> Iterator[Moved]:
    """Yield the kernels of XLA's optimized module."""
    times = executions(module)
    fused = {
        callee
        for x in module.all_instructions()
        if x.opcode not in _RUNNING
        for callee in x.called_computations
    }
    for computation in module.computations_post_order():
        if computation in fused:
            continue
        for x in computation.instructions:
            if x.opcode not in _SILENT and x.opcode not in KIND:
                yield Moved(described(x), times[computation], kernel_bytes(x))


#: Opcodes whose callees consist of kernels; callees of others are parts of one kernel.
_RUNNING = CALLERS | {Opcode.ASYNC_START}


# ---- ours
def our_kernels(module: HloModule) -> Iterator[Moved]:
    """Yield the kernels of a per-device module that is optimized or further."""
    executable = build_executable(module, check=False)
    instructions = {x.name: x for x in executable.module.all_instructions()}
    return _of_thunk(executable.program.thunks, instructions, 1)


def _of_thunk(thunk: Thunk, instructions: dict[str, HloInstruction], times: int) -> Iterator[Moved]:
    made_of = instructions.get(thunk.name)
    if isinstance(thunk, WhileThunk):
        times *= trip_count(instructions[thunk.name]) or 1
    if isinstance(thunk, CopyThunk):
        moved = _touched(thunk.source) + _touched(thunk.target)
        yield Moved(f"copy for {thunk.name} {thunk.target.view}", times, moved)
    if isinstance(thunk, KernelThunk):
        operands = dict.fromkeys(thunk.operands)
        given = float(sum(map(_touched, operands)) + sum(map(_touched, thunk.results)))
        if made_of is None:
            yield Moved(thunk.name, times, given)
        else:
            yield Moved(described(made_of), times, min(given, kernel_bytes(made_of)))
    for inner in thunk.nested():
        yield from _of_thunk(inner, instructions, times)


def _touched(place: ArrayView) -> int:
    return place.view.stored_bytes


# ---- the report
@dataclass(frozen=True)
class Row:
    """Bytes of one device's kernels in a step."""

    name: str
    ours: float
    peer: float

    @staticmethod
    def of(name: str, ours: Sequence[Moved], peer: Sequence[Moved]) -> Row:
        return Row(name, sum(x.size for x in ours), sum(x.size for x in peer))

    @property
    def ratio(self) -> float:
        return self.ours / max(self.peer, 1.0)

    def __str__(self) -> str:
        return f"{self.name:28s} {self.ours:14.0f} {self.peer:14.0f} {self.ratio:7.3f}"


def measure(case: Path, *, fusion: bool) -> tuple[list[Moved], list[Moved]]:
    """Return our kernels, and XLA's."""
    devices = json.loads((case / "case.json").read_text())["num_partitions"]
    logical = parse_module((case / "module.hlo").read_text())
    *_, (_, compilation) = stages(logical, devices, CompileOptions(fusion=fusion))
    peer = parse_module((case / "peer.hlo").read_text())
    return list(our_kernels(compilation.module)), list(peer_kernels(peer))


def print_most(whose: str, kernels: Iterable[Moved], most: int) -> None:
    print(f"  {whose + ': bytes':>14s} {'times':>6s}")
    for one in sorted(kernels, key=lambda x: -x.size)[:most]:
        print(f"  {one}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--no-fusion", action="store_true", help="ours without fusion")
    parser.add_argument("--most", type=int, default=0, help="kernels of either side to be listed")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    print(f"{'case':28s} {'ours, bytes':>14s} {'XLA':>14s} {'ratio':>7s}")
    rows = []
    for path in sorted(options.corpus.glob("*/peer.hlo")):
        if re.search(options.only, path.parent.name):
            ours, peer = measure(path.parent, fusion=not options.no_fusion)
            rows.append(Row.of(path.parent.name, ours, peer))
            print(rows[-1], flush=True)
            if options.most:
                print_most("ours", ours, options.most)
                print_most("XLA's", peer, options.most)
    mean = geometric_mean(row.ratio for row in rows)
    print(f"geometric mean over {len(rows)} cases: {mean:.3f} (at most {MOST} wanted)")
    if options.json:
        found = [asdict(row) | {"ratio": row.ratio} for row in rows]
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if mean <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
