"""Native code of matrix products on the tile unit: operands are packed in blocks that fit in cache, panel by panel.

Vector instructions for the same types use the same panels.

One operand, the resident one, stays packed while the other, the passing one, is packed piece by piece. For each block
of lines of the resident operand and each block of the depth, its part is packed. Then 32 rows of lhs (or some columns
of rhs) at a time are packed, each packed panel is multiplied with each, and 32 by 32 elements of the result are stored
or accumulated; on the tile unit this is interleaved with the instructions that multiply the next ones. Packed operands
are on the stack, about 1 MiB, so that a step allocates nothing.

The unit flushes denormal numbers to zero, so f32 parts and their products are scaled: packing multiplies by 2^24, and
results are multiplied by 2^-48. Then the parts of the smallest denormal are normal, and the products that are lost are
2^-24 of the smallest f32. Numbers that are too large for this, infinite or nan are found while they are packed, and
their blocks are computed by other code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from runtime.codegen.elements.builder import Bool, Float, Int
from runtime.codegen.elements.formats import F32
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, selected
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.tile_multiply_ir import add_multiply, call_multiply
from runtime.cpu.kernels.gemm.tile_pack_ir import add_pack, pack_function
from runtime.cpu.kernels.gemm.tile_store_ir import add_finish
from runtime.cpu.kernels.gemm.tile_types import (
    BLOCK_BYTES,
    CONFIG_IR,
    HALVES,
    LINES,
    PANEL,
    TileTypes,
    most_depth,
)
from runtime.cpu.kernels.gemm.tile_unit import Unit
from runtime.cpu.kernels.gemm.vector_multiply_ir import add_multiply as add_multiply_by_vectors
from runtime.program.argument_record import Address, Record, Word, record
from spmd.shape import PrimitiveType

#: Factors of packed numbers and of results, in checked products.
SCALE, UNSCALE = 2.0**24, 2.0**-48
#: If the sum of two stored (biased) f32 exponents and the number of bits of a depth is less, all sums are finite.
_MOST_EXPONENT = 376


@record
class TileRecord(Record):
    """Record of out[m, n] = lhs[m, k] rhs[k, n], or += if ``adds``: addresses, sizes, and strides in bytes.

    A line is a row of lhs or a column of rhs. The strides ``.._line`` are those between lines, and ``.._depth`` those
    along the depth. Each operand is contiguous across lines or along the depth, and rows of the result are contiguous.
    """

    lhs: Address
    rhs: Address
    out: Address
    m: Word
    n: Word
    k: Word
    lhs_line: Word
    lhs_depth: Word
    rhs_line: Word
    rhs_depth: Word
    out_row: Word
    adds: Word


def instead_function(module: Module) -> FunctionWriter:
    """Return the writer of ``instead``(record, i, j, d, rows, columns, depth, add).

    The caller writes its code, which computes a block with numbers that are too large for the unit: lines i.. of lhs,
    lines j.. of rhs, from depth d on. The block is added to the result if ``add``.
    """
    return internal_function(module, "instead", *["i64"] * 6, "i1", record=TileRecord)


def product_module(types: TileTypes, *, instead: bool, unit: Unit = Unit.TILES) -> Module:
    """Return a module with ``product``(record, scale, unscale, checked), which returns whether all was computed.

    Operands are multiplied by ``scale`` and results by ``unscale``. If ``checked``, blocks with numbers beyond the
    unit's range are computed by the function ``instead``, which the caller adds; if ``instead`` is False, ``product``
    returns false at such a block.
    """
    module = Module(CONFIG_IR)
    add_pack(module, types)
    (add_multiply if unit is Unit.TILES else add_multiply_by_vectors)(module, types)
    add_finish(module, types)
    parameters = ("float", "float", "i1")
    f = internal_function(module, "product", *parameters, record=TileRecord, result="i1")
    _Product(f, types, instead, unit).write()
    return module


class _Operand(NamedTuple):
    """Matrix whose lines are packed. ``lines`` is their number, and ``turn`` tells that its tiles must be transposed.

    The strides are in bytes: ``line`` from line to line, ``depth`` along the depth, and ``out`` in the result from the
    element of one line to that of the next.
    """

    base: Pointer
    lines: Int
    line: Int
    depth: Int
    turn: Bool
    out: Int


class _Product:
    """Writer of ``product``, in which one operand is resident and the other passes."""

    def __init__(self, f: FunctionWriter, types: TileTypes, instead: bool, unit: Unit) -> None:
        self.f, self.types, self.instead = f, types, instead
        self.by_tiles = unit is Unit.TILES
        self.record, self.scale, self.unscale, self.checked = f.parameters
        #: One function packs both operands, so that either may be resident.
        self.one_packing = pack_function(types.lhs) == pack_function(types.rhs)

    def write(self) -> None:
        f, rec, types = self.f, self.f.record, self.types
        # There is room for at least one panel of the passing operand with the greatest depth.
        passing_bytes = most_depth(types) // types.step_depth * types.step_bytes
        if self.one_packing:
            passing_bytes = max(passing_bytes, tuning.PASSING_BYTES)
        room = [f.array(size, "i8", align=4096) for size in (tuning.RESIDENT_BYTES, passing_bytes)]
        self.total = f.array(BLOCK_BYTES, "i8")
        most = [f.array(64, "i8"), f.array(64, "i8")]
        if self.by_tiles:
            f.call("void", "llvm.x86.ldtilecfg", Pointer(f, "@tile_config"))
        adds_at_all = rec.adds.differs(0)
        lhs_turn = rec.lhs_depth.differs(types.lhs.byte_size)
        rhs_turn = rec.rhs_depth.equals(types.rhs.byte_size)
        full_depth = self.full_depth()
        self.panel_bytes = full_depth // types.step_depth * types.rhs_step_bytes
        full_width, most_passing = (
            f.constant(size) // self.panel_bytes * PANEL
            for size in (tuning.RESIDENT_BYTES, passing_bytes)
        )
        self.keeps_lhs = keeps = self.choice(lhs_turn, rhs_turn, full_width)
        column = f.constant(types.result.byte_size)
        lhs = _Operand(rec.lhs, rec.m, rec.lhs_line, rec.lhs_depth, lhs_turn, rec.out_row)
        rhs = _Operand(rec.rhs, rec.n, rec.rhs_line, rec.rhs_depth, rhs_turn, column)
        cached = _Operand(*(selected(keeps, a, b) for a, b in zip(lhs, rhs, strict=True)))
        passing = _Operand(*(selected(keeps, b, a) for a, b in zip(lhs, rhs, strict=True)))
        # lhs passes 32 rows at a time; rhs passes enough columns that the rows of the result are not short.
        width_of_passing = keeps.select(most_passing, PANEL)
        self.panels = selected(keeps, *room), selected(keeps, room[1], room[0])
        with f.loop(cached.lines, step=full_width) as a:
            width = (cached.lines - a).umin(full_width)
            cached_a, out_a = cached.base.at(a * cached.line), rec.out.at(a * cached.out)
            with f.loop(rec.k, step=full_depth) as d:
                depth = (rec.k - d).umin(full_depth)
                self.add = d.differs(0) | adds_at_all
                resident = cached._replace(base=cached_a.at(d * cached.depth))
                moving = passing._replace(base=passing.base.at(d * passing.depth))
                self.pack(types.rhs, room[0], resident, width, depth, most[0])
                with f.loop(passing.lines, step=width_of_passing) as b:
                    lines = (passing.lines - b).umin(width_of_passing)
                    some = moving._replace(base=moving.base.at(b * passing.line))
                    self.pack(types.lhs, room[1], some, lines, depth, most[1])
                    out = out_a.at(b * passing.out)
                    sizes = keeps.select(width, lines), keeps.select(lines, width)
                    start = keeps.select(a, b), keeps.select(b, a), d
                    self.multiply_block(out, start, (*sizes, depth), most)
        self.end(f.true())
        f.finish()

    def multiply_block(
        self, out: Pointer, start: Sequence[Int], sizes: tuple[Int, Int, Int], most: list[Pointer]
    ) -> None:
        """Multiply the packed operands if their numbers are in the unit's range, otherwise call ``instead`` or return.

        The block begins at row, column and depth ``start`` and has ``sizes`` rows, columns and depth.
        """
        f = self.f
        if not self.types.is_float:
            self.sweep(out, *sizes)
            return
        with f.when(self.fits(most, sizes[2]) | ~self.checked) as fine:
            self.sweep(out, *sizes)
            fine.otherwise()
            if self.instead:
                f.call("void", "instead", self.record, *start, *sizes, self.add)
            else:
                self.end(f.false())

    def end(self, is_done: Bool) -> None:
        """Release the tile unit and return ``is_done``."""
        if self.by_tiles:
            self.f.call("void", "llvm.x86.tilerelease")
        self.f.ret(is_done)

    def full_depth(self) -> Int:
        """Return the depth of a block, a multiple of a step, such that all blocks have about the same depth."""
        step, most, k = self.types.step_depth, most_depth(self.types), self.f.record.k
        blocks = (k + (most - 1)) // most
        share: Int = (k + (blocks - 1)) // blocks
        return (share + (step - 1)) & -step

    def choice(self, lhs_turn: Bool, rhs_turn: Bool, full_width: Int) -> Bool:
        """Return whether lhs is the resident operand, which is chosen by the total cost of packing.

        The passing operand is packed once for every block of resident lines. A line that must be transposed counts
        twice (measured). If the operands need different packing functions, rhs is resident.
        """
        f, rec = self.f, self.f.record
        if not self.one_packing:
            return f.false()
        once = [
            lines * turn.select(f.constant(2), 1)
            for lines, turn in ((rec.m, lhs_turn), (rec.n, rhs_turn))
        ]
        m_blocks, n_blocks = ((lines + (full_width - 1)) // full_width for lines in (rec.m, rec.n))
        keeps_lhs: Bool = (once[0] + once[1] * m_blocks).ult(once[1] + once[0] * n_blocks)
        return keeps_lhs

    def pack(
        self,
        kind: PrimitiveType,
        to: Pointer,
        operand: _Operand,
        lines: Int,
        depth: Int,
        most: Pointer,
    ) -> None:
        """Call the function that packs lines of ``operand`` to ``to`` and notes the largest magnitudes at ``most``."""
        sizes = (operand.line, operand.depth, lines, depth, operand.turn, self.panel_bytes)
        name = f"{pack_function(kind)}_lines"
        self.f.call("void", name, to, operand.base, *sizes, self.scale, most)

    def fits(self, most: list[Pointer], depth: Int) -> Bool:
        """Return whether all sums of products of the packed numbers are certainly finite."""
        cached, passing = (self.largest(address) for address in most)
        magnitude = (passing + cached) + (64 - depth.leading_zeros())
        return (passing.ult(255) & cached.ult(255)) & magnitude.ult(_MOST_EXPONENT)

    def largest(self, most: Pointer) -> Int:
        """Return the largest exponent of the packed numbers, with the bias with which f32 stores it."""
        one: Int = self.f.call(
            "i16", f"llvm.vector.reduce.umax.v{2 * LINES}i16", most.load(HALVES, 64)
        )
        return (one >> 7).resized("i64")

    def sweep(self, out: Pointer, all_rows: Int, all_columns: Int, depth: Int) -> None:
        """Multiply each packed panel of lhs with each of rhs, for the block of the result at ``out``.

        On the tile unit 32 by 32 sums are finished (scaled and stored) while the next ones are computed.
        """
        f, rec, types = self.f, self.f.record, self.types
        steps = (depth + (types.step_depth - 1)) // types.step_depth
        with f.repeat(0, out, 0, 0) as row_panels:
            r, *above = row_panels.values
            lhs = self.panels[0].at(r // PANEL * self.panel_bytes)
            rows, out_r = (all_rows - r).umin(PANEL), out.at(r * rec.out_row)
            with f.repeat(0, *above) as column_panels:
                c, *before = column_panels.values
                rhs = self.panels[1].at(c // PANEL * self.panel_bytes)
                columns, to = (all_columns - c).umin(PANEL), out_r.at(c * types.result.byte_size)
                block = to, rows, columns
                if self.by_tiles:
                    self.multiply(lhs, rhs, steps, (rows, columns), before)
                else:
                    f.call("void", "multiply", lhs, rhs, steps, rows, columns, self.total)
                    self.finish(*block)
                column_panels.again(c + PANEL, *block, when=(c + PANEL).ult(all_columns))
            row_panels.again(r + PANEL, *block, when=(r + PANEL).ult(all_rows))
        if self.by_tiles:
            self.finish(*block)

    def multiply(
        self, lhs: Pointer, rhs: Pointer, steps: Int, sizes: tuple[Int, Int], before: list[Any]
    ) -> None:
        """Multiply two panels on the tile unit.

        ``before`` are the address, rows and columns of the previous sums, which are finished meanwhile.
        """
        f, (to, rows, columns) = self.f, before
        pending = (self.total, to, f.record.out_row, rows, columns, self.add, self.unscale)
        call_multiply(f, sizes, lhs, rhs, steps, *pending)
        f.call("void", "store", self.total)

    def finish(self, to: Pointer, rows: Int, columns: Int) -> None:
        """Scale the sums and store them in, or add them to, ``rows`` by ``columns`` elements at ``to``."""
        out_row = self.f.record.out_row
        self.f.call(
            "void", "finish", self.total, to, out_row, rows, columns, self.add, self.unscale
        )


def call_product(
    f: FunctionWriter, record: Pointer, scale: float, unscale: float, *, checked: bool
) -> Bool:
    """Call ``product`` with constant scales. Returns whether it has computed the entire product."""
    scales = [Float(f, F32, F32.literal(number)) for number in (scale, unscale)]
    done: Bool = f.call("i1", "product", record, *scales, f.true() if checked else f.false())
    return done
