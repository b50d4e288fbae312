"""Native code of a convolution in vector registers: a few rows of the patch matrix at a time are packed and multiplied.

Rows are packed in the L1 cache and multiplied with the packed w, one block of the depth after the other; the products
of all blocks but the first are added to the result. There are two functions with a ``VectorRecord``: one for inputs
with contiguous channels (``LeftLayout.ROWS``), and one for results with contiguous rows (``LeftLayout.DEPTH``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, selected
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import (
    ITEM,
    add_multiply,
)
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import Unit, add_walking, position_cursor
from runtime.cpu.kernels.convolution.ir.vector_pack_ir import add_depth, add_rows
from runtime.program.argument_record import Address, Listed, Record, Word, record, word_count
from runtime.program.records.convolution import LeftLayout, VectorMicroKernel

FUNCTION = "spmd_convolve_vectors"


@record
class VectorRecord(Record):
    """Record of one convolution of x[g, n, h.., c], w[g, window.., c, f] and out[g, n, h.., f].

    Fields whose name says so are in bytes, all others in elements. ``left``, ``packed``, ``table``, ``met``, ``buffer``
    and ``spare`` are addresses in scratch. ``total`` is the number of outer indices, whose four dimensions have the
    sizes total / (size1 * size2 * size3), size1, size2 and size3; they are positions of the result (ROWS), or of the
    window with its channels (DEPTH). ``high`` are the input's spatial sizes, and ``interior`` the number of indices
    there at which a window without padding may begin. ``block_outer`` is the number of outer indices per block.
    ``buffered`` is the number of rows of ``buffer`` (ROWS), or 0. ``run`` is the number of contiguous rows (DEPTH), and
    ``row_bytes`` their stride in the result, or in the buffer (ROWS). ``instances`` lists Instances, ``outer`` the
    first position and four strides of positions, ``units`` is as in vector_offsets_ir, and ``blocks`` lists Blocks
    (ROWS).
    """

    x: Address
    w: Address
    out: Address
    left: Address
    packed: Address
    table: Address
    met: Address
    buffer: Address
    spare: Address
    features: Word
    block_features: Word
    feature_bytes: Word
    channel_bytes: Word
    out_feature_bytes: Word
    total: Word
    size1: Word
    size2: Word
    size3: Word
    high0: Word
    high1: Word
    high2: Word
    interior0: Word
    interior1: Word
    interior2: Word
    block_outer: Word
    buffered: Word
    run: Word
    row_bytes: Word
    instance_count: Word
    unit_count: Word
    block_count: Word
    instances: Listed
    outer: Listed
    units: Listed
    blocks: Listed


@record
class Instance(Record):
    """Offsets of one group in x, w and out, in bytes."""

    x: Word
    w: Word
    out: Word


@record
class Block(Record):
    """Block of the depth: the number of its first unit, the number of its units, and their depth."""

    first_unit: Word
    unit_count: Word
    depth: Word


#: Number of words of a block.
BLOCK = word_count(Block)
_BLOCK, _INSTANCE, _UNIT = (f"[{word_count(kind)} x i64]" for kind in (Block, Instance, Unit))
#: Largest number of rows of the result that are multiplied at a time.
_ROWS = 16


@cache
def vector_code(variant: VectorMicroKernel, left: LeftLayout) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32, which takes the address of a VectorRecord."""
    return host_jit().compile(vector_ir(variant, left), (FUNCTION,), passes=Passes.TIDY)


def vector_ir(variant: VectorMicroKernel, left: LeftLayout) -> str:
    """Return the IR of ``vector_code``."""
    heights = variant.next_heights()
    numbers = ", ".join(f"i8 {height}" for height in heights)
    module = Module(
        f"@heights = internal constant [{len(heights)} x i8] [{numbers}]",
    )
    add_multiply(module, variant, left)
    add_walking(module, VectorRecord)
    _add_multiply_all(module, variant)
    driver = _Driver(FunctionWriter(FUNCTION, VectorRecord, module=module), variant)
    if left is LeftLayout.ROWS:
        add_rows(module, variant, VectorRecord)
        _add_spread(module)
        driver.by_rows()
    else:
        add_depth(module, variant, VectorRecord)
        driver.by_depth()
    return module.text()


def _add_multiply_all(module: Module, variant: VectorMicroKernel) -> None:
    """Add ``multiply_all``(record, depth, rows, columns, height, add), which multiplies packed rows by the packed w.

    ``rows`` lists the addresses of the result's rows.
    """
    f = internal_function(
        module, "multiply_all", "i64", "ptr", "i64", "i64", "i1", record=VectorRecord
    )
    _, depth, rows, columns, height, add = f.parameters
    left, panel_bytes = f.record.left, depth * (variant.columns * ITEM)
    with f.repeat(0, f.record.packed) as panels:
        first, panel = panels.values
        given = (left, panel, depth, rows, first * ITEM, columns - first, height, add)
        f.call("void", "multiply", *given)
        behind = first + variant.columns
        panels.again(behind, panel.at(panel_bytes), when=behind.ult(columns))
    f.finish()


def _add_spread(module: Module) -> None:
    """Add ``spread``(rows, from_rows, count, columns, step), which stores rows whose features are strided.

    ``rows`` and ``from_rows`` list the addresses of rows in the result and in the buffer; ``step`` is in bytes.
    """
    f = internal_function(module, "spread", "ptr", "ptr", "i64", "i64", "i64")
    rows, from_rows, count, columns, apart = f.parameters
    with f.loop(columns) as column:
        way = column * apart
        with f.loop(count) as r:
            value = from_rows.pointer(r).element("float", column).load("float")
            rows.pointer(r).at(way).store(value)
    f.finish()


class _Driver:
    """Writer of ``FUNCTION``, which repeats for all blocks of the operands."""

    def __init__(self, f: FunctionWriter, variant: VectorMicroKernel) -> None:
        self.f, self.variant = f, variant
        self.record = f.parameters[0]
        self.position = position_cursor(f)
        self.rows, self.targets = (f.array(_ROWS, "ptr", align=8) for _ in range(2))

    @contextmanager
    def features(self) -> Iterator[tuple[Pointer, Pointer, Pointer, Int]]:
        """Loop over groups and blocks of features. Yields their addresses in x, w and out, and the feature count."""
        f, rec = self.f, self.f.record
        x, w, out, features = rec.x, rec.w, rec.out, rec.features
        most, feature_bytes, out_bytes = (
            rec.block_features,
            rec.feature_bytes,
            rec.out_feature_bytes,
        )
        instances = rec.instances
        with f.loop(rec.instance_count) as g:
            own = f.view(Instance, instances.element(_INSTANCE, g))
            x_g, w_g, out_g = x.at(own.x), w.at(own.w), out.at(own.out)
            with f.loop(features, step=most) as first:
                columns = (features - first).smin(most)
                yield x_g, w_g.at(first * feature_bytes), out_g.at(first * out_bytes), columns
        f.finish()

    def height(self, left: Int) -> Int:
        """Return the height of the next tile (the number of rows multiplied at a time) if ``left`` rows remain."""
        f = self.f
        last = len(self.variant.next_heights()) - 1
        known = Pointer(f, "@heights").element("i8", left.smin(last))
        height: Int = known.load("i8").resized("i64")
        return height

    @contextmanager
    def tiles(self, count: Int) -> Iterator[tuple[Int, Int, Int]]:
        """Repeat for the tiles of ``count`` rows. Yields the first row, the tile's height, and its number of rows."""
        f = self.f
        with f.repeat(0) as each:
            (r,) = each.values
            left = count - r
            height = self.height(left)
            yield r, height, left.smin(height)
            behind = r + height
            each.again(behind, when=behind.ult(count))

    def multiply(self, depth: Int, columns: Int, height: Int, add: Bool) -> None:
        """Multiply the packed rows by the packed w, and store the products, or add them to the targets."""
        given = (depth, self.targets, columns, height, add)
        self.f.call("void", "multiply_all", self.record, *given)

    def by_rows(self) -> None:
        """Write the function for inputs with contiguous channels."""
        f, rec = self.f, self.f.record
        total, block_outer, blocks, units = rec.total, rec.block_outer, rec.blocks, rec.units
        block_count, is_buffered = rec.block_count, rec.buffered.differs(0)
        with self.features() as (x, w, out, columns), f.loop(total, step=block_outer) as p:
            count = (total - p).smin(block_outer)
            with f.loop(block_count) as b:
                block = f.view(Block, blocks.element(_BLOCK, b))
                own, unit_count = units.element(_UNIT, block.first_unit), block.unit_count
                depth = block.depth
                spreads = (b + 1).equals(block_count) & is_buffered
                f.call("void", "pack_w", self.record, w, own, unit_count, columns)
                f.call("void", "seek", self.record, p, self.position)
                with self.tiles(count) as (r, height, here):
                    where = (self.position, own, unit_count, self.rows)
                    f.call("void", "pack_rows", self.record, x, out, p + r, here, *where)
                    self.write_targets(r, height, here, is_buffered)
                    self.multiply(depth, columns, height, b.compared("ugt", 0))
                    with f.when(spreads):
                        step = rec.out_feature_bytes
                        f.call("void", "spread", self.rows, self.targets, here, columns, step)

    def write_targets(self, r: Int, height: Int, count: Int, is_buffered: Bool) -> None:
        """Set the address of each row of the product: in the buffer or the result, or the spare row after the last."""
        f, rec = self.f, self.f.record
        buffer, row_bytes, spare = rec.buffer, rec.row_bytes, rec.spare
        with f.loop(height) as t:
            row = buffer.at((r + t) * row_bytes)
            to = selected(t.ult(count), self.rows.pointer(t), spare)
            self.targets.element("ptr", t).store(selected(is_buffered, row, to))

    def by_depth(self) -> None:
        """Write the function for results with contiguous rows."""
        f, rec = self.f, self.f.record
        total, block_outer, units, unit_count = (
            rec.total,
            rec.block_outer,
            rec.units,
            rec.unit_count,
        )
        run, row_bytes, spare = rec.run, rec.row_bytes, rec.spare
        with self.features() as (x, w, out, columns), f.loop(total, step=block_outer) as k:
            depth = (total - k).smin(block_outer)
            f.call("void", "walk", self.record, k, depth, self.position)
            f.call("void", "pack_w", self.record, w, depth, columns)
            with f.loop(unit_count) as u:
                unit = units.element(_UNIT, u)
                out_u = out.at(f.view(Unit, unit).other)
                f.call("void", "meet", self.record, x, unit, depth)
                with self.tiles(run) as (r, height, count):
                    f.call("void", "pack_left", self.record, depth, r, count)
                    with f.loop(height) as t:
                        row = out_u.at((r + t) * row_bytes)
                        self.targets.element("ptr", t).store(selected(t.ult(count), row, spare))
                    self.multiply(depth, columns, height, k.compared("ugt", 0))
