"""Transposes and copies that one device makes in a step, beside XLA CPU's, case by case.

    python -m benchmarks.partitioning.transpose_report CORPUS [--only REGEX] [--markdown FILE] [--list]

Needs module.hlo, peer.hlo and case.json of each case and runs none of them. A transpose is an array read in another
order of dimensions than it is written in; a copy keeps the order. Dimensions of size 1, and
repeated ones, do not count in an order.

Ours are counted in the thunks: copies (kept apart by order), and operands that a kernel reads in another order than it
writes its result in, or results that it writes in another order than its first. XLA's are counted in its text:
``transpose`` and ``copy`` instructions whose layouts differ in order, wherever they stand, in fusions too (a
``bitcast``, or a ``transpose`` that its layouts undo, moves nothing).
Products of matrices and convolutions pack what they read in whatever order it lies, and all-to-alls move what they read
to other places, so their own reads are not counted; what is copied for them beforehand is. Counts are instructions;
bytes are those of the results, executed: loops count their trips, where these are known.

Exits 1 when ours are more in total than XLA's, in number or in bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.buffers.types import ArrayView
from runtime.compile import build_executable
from runtime.program.records.convolution import PanelConvolutionKernel, PhaseConvolutionKernel
from runtime.program.records.dot import DotKernel, SlicedProductKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import (
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Role,
    Thunk,
    WhileThunk,
)
from spmd.analysis.executions import executions
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, Layout
from spmd.text.parser import parse_module


@dataclass(frozen=True, slots=True)
class Move:
    """One array that is moved: ``bytes`` each time, ``times`` per step; ``reorders`` makes it a transpose."""

    name: str
    reorders: bool
    bytes: int
    times: int


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of moves; ``bytes`` count all executions."""

    transposes: int = 0
    transposed_bytes: int = 0
    copies: int = 0
    copied_bytes: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(
            self.transposes + other.transposes,
            self.transposed_bytes + other.transposed_bytes,
            self.copies + other.copies,
            self.copied_bytes + other.copied_bytes,
        )

    @property
    def count(self) -> int:
        return self.transposes + self.copies

    @property
    def bytes(self) -> int:
        return self.transposed_bytes + self.copied_bytes


def total(moves: Sequence[Move]) -> Total:
    transposes = [move for move in moves if move.reorders]
    copies = [move for move in moves if not move.reorders]
    return Total(
        len(transposes),
        sum(move.bytes * move.times for move in transposes),
        len(copies),
        sum(move.bytes * move.times for move in copies),
    )


def reorders(source: StridedView, target: StridedView) -> bool:
    """Return whether the dimensions (of a size above 1, not repeated) lie in another order, slowest first."""
    moved = [d for d, n in enumerate(source.dims) if n > 1 and source.strides[d]]
    by_source = sorted(moved, key=lambda d: -abs(source.strides[d]))
    return by_source != sorted(moved, key=lambda d: -abs(target.strides[d]))


# ---- ours
_PACKING = (DotKernel, SlicedProductKernel, PanelConvolutionKernel, PhaseConvolutionKernel)


def our_moves(module: HloModule) -> list[Move]:
    """Return the transposes and copies of a per-device module that is optimized or further."""
    executable = build_executable(module, check=False)
    loops = {x.name: x for x in executable.module.all_instructions() if x.opcode is Opcode.WHILE}
    trips = {name: trip_count(loop) or 1 for name, loop in loops.items()}
    return list(_thunk_moves(executable.program.thunks, 1, trips))


def _thunk_moves(thunk: Thunk, times: int, trips: dict[str, int]) -> Iterator[Move]:
    if isinstance(thunk, CopyThunk):
        source, target = thunk.source.view, thunk.target.view
        if not _is_fill(source):
            yield Move(thunk.name, reorders(source, target), target.byte_size, times)
    elif not (isinstance(thunk, KernelThunk) and isinstance(thunk.kernel, _PACKING)):
        results = [place.view for place in _places(thunk, Role.RESULT)]
        for place in (*_places(thunk, Role.OPERAND), *_places(thunk, Role.RESULT)):
            view = place.view
            written = next((r for r in results if r.dims == view.dims), _row_major(view))
            if view.dims and reorders(view, written):
                yield Move(thunk.name, True, view.stored_bytes, times)
    inside = times * trips.get(thunk.name, 1) if isinstance(thunk, WhileThunk) else times
    for inner in thunk.nested():
        yield from _thunk_moves(inner, inside, trips)


def _is_fill(source: StridedView) -> bool:
    """Return whether one value is everywhere: XLA's text has a broadcast for that, no copy."""
    return source.num_elements > 1 and source.stored_bytes == source.element_type.byte_size


def _places(thunk: Thunk, role: Role) -> Iterator[ArrayView]:
    if isinstance(thunk, (WhileThunk, ConditionalThunk)):
        return
    for use in thunk.buffer_uses():
        if use.role is role:
            yield use.array


def _row_major(view: StridedView) -> StridedView:
    return StridedView.dense(ArrayShape(view.element_type, view.dims))


# ---- XLA's
def peer_moves(module: HloModule) -> list[Move]:
    """Return the transposes and copies of an optimized module with layouts."""
    times = executions(module)
    found = []
    for computation in module.computations_post_order():
        for x in computation.instructions:
            if x.opcode in (Opcode.TRANSPOSE, Opcode.COPY) and isinstance(x.shape, ArrayShape):
                source, target = _seen_by(x), laid_out(x.shape)
                changed = reorders(source, target)
                if changed or x.opcode is Opcode.COPY:
                    found.append(Move(x.name, changed, target.byte_size, times[computation]))
    return found


def laid_out(shape: ArrayShape) -> StridedView:
    layout = shape.layout or Layout.default(shape.rank)
    return StridedView.dense_in_order(shape, layout.minor_to_major[::-1])


def _seen_by(x: HloInstruction) -> StridedView:
    """Return the view of the operand as it lies, with the dimensions of the result."""
    view = laid_out(x.operand(0).array_shape)
    if x.opcode is Opcode.COPY:
        return view
    return view.transpose(x.attrs_as(DimensionsAttrs).dimensions)


# ---- the report
@dataclass(frozen=True, slots=True)
class Row:
    name: str
    ours: Total
    peer: Total


def measure(case: Path) -> tuple[list[Move], list[Move]]:
    about = json.loads((case / "case.json").read_text())
    logical = parse_module((case / "module.hlo").read_text())
    compilations = stages(logical, about["num_partitions"], CompileOptions())
    *_, (_, compilation) = compilations
    peer = parse_module((case / "peer.hlo").read_text())
    return our_moves(compilation.module), peer_moves(peer)


def format_table(rows: Sequence[Row]) -> str:
    lines = [
        "| case | transposes | XLA's | their bytes | XLA's | copies | XLA's | their bytes | XLA's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        pairs = (
            (row.ours.transposes, row.peer.transposes),
            (row.ours.transposed_bytes, row.peer.transposed_bytes),
            (row.ours.copies, row.peer.copies),
            (row.ours.copied_bytes, row.peer.copied_bytes),
        )
        cells = [row.name, *(str(n) for pair in pairs for n in pair)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(everything: Row) -> list[str]:
    """Return a message for each bound that the totals break."""
    found = []
    ours, peer = everything.ours, everything.peer
    if ours.count > peer.count:
        found.append(f"{ours.count} transposes and copies, XLA has {peer.count}")
    if ours.bytes > peer.bytes:
        found.append(f"{ours.bytes} bytes moved by them, XLA moves {peer.bytes}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--list", action="store_true", help="print each move of ours")
    options = parser.parse_args()
    rows = []
    for path in sorted(options.corpus.glob("*/case.json")):
        if not re.search(options.only, path.parent.name):
            continue
        ours, peer = measure(path.parent)
        rows.append(Row(path.parent.name, total(ours), total(peer)))
        for move in ours if options.list else ():
            kind = "transpose" if move.reorders else "copy"
            print(
                f"{path.parent.name}: {kind} of {move.bytes} bytes x {move.times} for {move.name}"
            )
    everything = Row(
        "total",
        sum((row.ours for row in rows), Total()),
        sum((row.peer for row in rows), Total()),
    )
    table = format_table([*rows, everything])
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")
    broken = failures(everything)
    for line in broken:
        print(line)
    return 1 if broken or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
