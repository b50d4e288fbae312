"""Native code of convolutions with few output features: vectors hold channels, and results are horizontal sums.

One function serves all convolutions of an element type and number of features. It computes several positions of a line
concurrently, for all features, so that each loaded vector of the kernel is used for all of them. A convolution may have
several phases, which are convolutions of the same input with different outputs. Phases alternate line by line, so that
the input stays in cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.elements.builder import Int
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, selected, zeros
from runtime.codegen.ir.vectors import first_lanes, intrinsic, masked_load
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.gemm.native_dot import host_registers
from runtime.program.argument_record import Address, Listed, Record, Word, record
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

FUNCTION = "spmd_convolve_thin"


@record
class ThinRecord(Record):
    """Record of the phases of one convolution.

    ``instances`` lists (address in x, number of the group, offset in the results in bytes), one for each group and
    image. ``phases`` lists the addresses of PhaseRecords, and ``most_lines`` is the largest number of lines of a phase.
    """

    instance_count: Word
    most_lines: Word
    phase_count: Word
    instances: Listed
    phases: Listed


@record
class PhaseRecord(Record):
    """Record of one phase, for w[g, tap.., f, c] with contiguous channels; strides and offsets are in bytes.

    ``zeros`` is the address of as many zeros as there are channels. ``lines`` lists (offset in out, begin and end of
    its entries) for each line of results. ``entries`` lists (offset in x, offset in w) of the lines of the window that
    are inside the input. ``columns`` gives for every tap the offsets of the positions in a line of x, or -1.
    """

    w: Address
    w_group_bytes: Word
    w_column_bytes: Word
    w_feature_bytes: Word
    channels: Word
    zeros: Address
    out: Address
    out_column_bytes: Word
    out_feature_bytes: Word
    line_count: Word
    width: Word
    column_taps: Word
    lines: Listed
    entries: Listed
    columns: Listed


@dataclass(frozen=True, slots=True)
class Lanes:
    """Sums that registers hold: a vector of partial sums, over channels, for each of several positions and features.

    ``kind`` is the element type, and ``features`` the number of features of the result.
    """

    kind: PrimitiveType
    features: int

    @property
    def lanes(self) -> int:
        """Return the number of elements of a vector register of the host."""
        return host_registers().bytes // self.kind.byte_size

    @property
    def positions(self) -> int:
        """Return the number of positions that are computed concurrently."""
        fitting = tuning.THIN_REGISTERS[host_registers().bytes] // self.features - 1
        return max(min(tuning.MOST_POSITIONS, fitting), 1)

    @property
    def count(self) -> int:
        """Return the number of vectors of sums."""
        return self.positions * self.features

    @property
    def scalar(self) -> str:
        """Return the LLVM type of an element."""
        return wide_type(self.kind)

    @property
    def vector(self) -> str:
        """Return the LLVM type of a vector."""
        return f"<{self.lanes} x {self.scalar}>"


@cache
def thin_code(kind: PrimitiveType, features: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32 or f64, which takes the address of a ThinRecord."""
    return host_jit().compile(thin_ir(Lanes(kind, features)), (FUNCTION,), passes=Passes.TIDY)


def thin_ir(sums: Lanes) -> str:
    """Return the IR of ``thin_code``."""
    module = Module()
    _Line(sums, module).write()
    f = FunctionWriter(FUNCTION, ThinRecord, module=module)
    rec = f.record
    with f.loop(rec.instance_count) as i:
        instance = rec.instances.element("[3 x i64]", i)
        x, group, out_offset = instance.pointer(0), instance.word(1), instance.word(2)
        with f.loop(rec.most_lines) as line, f.loop(rec.phase_count) as p:
            f.call("void", "line", rec.phases.pointer(p), x, group, out_offset, line)
    return f.end()


class _Line:
    """Writer of ``line``(record, x, group, out_offset, line).

    The function computes line number ``line`` of a phase's results, if the phase has it.
    """

    def __init__(self, sums: Lanes, module: Module) -> None:
        kinds = ("ptr", "i64", "i64", "i64")
        self.f = internal_function(module, "line", *kinds, record=PhaseRecord)
        self.sums, self.item = sums, sums.kind.byte_size
        channels = self.f.record.channels
        self.full, self.left = channels & -sums.lanes, channels & (sums.lanes - 1)
        self.mask = first_lanes(self.left, sums.lanes)
        self.nothing = [zeros(self.f, sums.vector)] * sums.count

    def write(self) -> None:
        f, rec, sums = self.f, self.f.record, self.sums
        _, x, group, out_offset, line = f.parameters
        with f.when(line.ult(rec.line_count)):
            own = rec.lines.element("[3 x i64]", line)
            out = rec.out.at(out_offset).at(own.word(0))
            w = rec.w.at(group * rec.w_group_bytes)
            last = rec.width - 1
            with f.loop(rec.width, step=sums.positions) as v:
                columns = [(v + p).umin(last) for p in range(sums.positions)]
                totals = self.products(x, w, columns, own)
                self.store(out, columns, totals)
        f.finish()

    def products(
        self, x: Pointer, w: Pointer, columns: Sequence[Int], line: Pointer
    ) -> list[Vector]:
        """Return the sums for the positions ``columns``, over the lines of the window that are inside the input."""
        f, rec = self.f, self.f.record
        first, end = line.word(1), line.word(2)
        with f.when(first.ult(end)) as is_any, f.repeat(first, *self.nothing) as entries:
            e, *before = entries.values
            entry = rec.entries.element("[2 x i64]", e)
            totals = self.line_products(x.at(entry.word(0)), w.at(entry.word(1)), columns, before)
            entries.again(e + 1, *totals, when=(e + 1).ult(end))
        return [is_any.merged(a, b) for a, b in zip(totals, self.nothing, strict=True)]

    def line_products(
        self, x: Pointer, w: Pointer, columns: Sequence[Int], before: Sequence[Vector]
    ) -> list[Vector]:
        """Return the sums ``before`` plus the products of one line of the window."""
        f, rec = self.f, self.f.record
        with f.repeat(0, *before) as taps:
            j, *of_tap = taps.values
            offsets = rec.columns.element("i64", j * rec.width)
            each = [offsets.word(column) for column in columns]
            inputs = [selected(way < 0, rec.zeros, x.at(way)) for way in each]
            w_tap = w.at(j * rec.w_column_bytes)
            kernels = [w_tap.at(rec.w_feature_bytes * n) for n in range(self.sums.features)]
            with f.when(self.full.differs(0)) as has_full, f.repeat(0, *of_tap) as channels:
                c, *sums = channels.values
                more = self.added(sums, inputs, kernels, c, None)
                following = c + self.sums.lanes
                channels.again(following, *more, when=following.ult(self.full))
            full = [has_full.merged(a, b) for a, b in zip(more, of_tap, strict=True)]
            with f.when(self.left.differs(0)) as has_left:
                last = self.added(full, inputs, kernels, self.full, self.mask)
            totals = [has_left.merged(a, b) for a, b in zip(last, full, strict=True)]
            taps.again(j + 1, *totals, when=(j + 1).ult(rec.column_taps))
        return totals

    def added(
        self,
        sums: Sequence[Vector],
        inputs: Sequence[Pointer],
        kernels: Sequence[Pointer],
        channel: Int,
        mask: Vector | None,
    ) -> list[Vector]:
        """Return ``sums`` plus the products of a vector of channels from ``channel`` on.

        ``mask`` selects the existing channels of the last vector.
        """

        def read(base: Pointer) -> Vector:
            """Load a vector of channels."""
            address = base.element(self.sums.scalar, channel)
            if mask is not None:
                return masked_load(address, self.sums.vector, mask, self.item)
            vector: Vector = address.load(self.sums.vector, align=self.item)
            return vector

        right, totals = [read(kernel) for kernel in kernels], list(sums)
        for p, base in enumerate(inputs):
            x = read(base)
            for n, w in enumerate(right):
                i = p * len(right) + n
                totals[i] = intrinsic("fmuladd", x, w, totals[i])
        return totals

    def store(self, out: Pointer, columns: Sequence[Int], totals: Sequence[Vector]) -> None:
        """Store the horizontal sums of ``totals`` at the positions ``columns`` of a line. The last may be repeated."""
        rec, sums = self.f.record, self.sums
        rows = [out.at(column * rec.out_column_bytes) for column in columns]
        for start in range(0, sums.count, sums.lanes):
            some = totals[start : start + sums.lanes]
            summed = _horizontal_sums(some)
            for lane in range(len(some)):
                p, feature = divmod(start + lane, sums.features)
                address = rows[p].at(rec.out_feature_bytes * feature)
                address.store(summed.lane(lane), align=self.item)


def _horizontal_sums(vectors: Sequence[Vector]) -> Vector:
    """Return the vector whose lane i is the horizontal sum of ``vectors[i]``.

    Pairs of vectors are interleaved and added: first by single lanes, then by pairs of lanes, and so on.
    """
    level, width, lanes = list(vectors), 1, vectors[0].lanes
    while width < lanes:
        level += level[-1:] * (len(level) % 2)
        orders = [
            [
                source * lanes + begin + half + element
                for begin in range(0, lanes, 2 * width)
                for source in (0, 1)
                for element in range(width)
            ]
            for half in (0, width)
        ]
        pairs = zip(level[::2], level[1::2], strict=True)
        halves = [[one.shuffled(order, other) for order in orders] for one, other in pairs]
        level, width = [low.combined("fadd", high) for low, high in halves], 2 * width
    return level[0]
