"""Native code of a convolution with a large window and a small output, as it computes the gradient of a kernel.

    out[c, o, f] = sum over n, j of x[c, j * dilation + o * stride - padding, n] * w[j, n, f]

The depth of the products consists of positions j of w and pairs of images n. It is traversed one line of w at a time,
for a group of pairs that fills tiles. w is split and packed into tiles, features by depth. x is split into planes
padded with zeros, in which the distance between an output o and the positions of a line is constant, so that the right
operand of every product of tiles is read from the planes without packing. Lines of padding are skipped. The sums are
[feature, channel] and are transposed before they are stored.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, zeros
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.convolution.ir.tile_block_ir import product_module
from runtime.cpu.kernels.convolution.ir.tile_gradient_pack_ir import PANEL_WORDS, add_packing
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import is_within, or_otherwise
from runtime.cpu.kernels.convolution.ir.tile_store_ir import begin, finish
from runtime.cpu.kernels.gemm.tile_types import INTS, TILE_BYTES
from runtime.program.argument_record import Address, Listed, Record, Word, record

FUNCTION = "spmd_convolve_gradient"


@record
class GradientRecord(Record):
    """Record of one convolution; offsets and strides are in bytes.

    w: a line of a group of ``group_pairs`` pairs of images is ``line_steps`` steps of the depth. ``positions`` gives
    the offsets of its words, or -1 for none. x: line l of a group in the planes is line l * line_unit + (first line of
    the panel) of the images, which have ``lines`` lines. It consists of runs of ``run_elements`` elements, or, if that
    is 0, of as many as the instance has channels.

    ``instances`` lists (x, w, out, channels, features). ``panels`` lists (offsets of images in x and w, numbers of
    images, groups and lines of w, first line of x), followed for each output along the rows by the first of its steps
    in the tables and their number. ``phases`` of the planes' columns lists (offset of the first column in a line of x,
    offset in the planes, runs). ``taps`` lists (output along the rows, offset in the planes, columns of its product or
    0 for as many as the instance has channels, first of ``offsets``). ``left_steps`` and ``right_steps`` give the
    offsets of each step's tiles. ``offsets`` gives the offset in out of each column of a tap, or -1 for none, and
    ``lane_offsets`` those of 32 features relative to it. ``dense`` tells that these features are contiguous.
    """

    x: Address
    w: Address
    out: Address
    left: Address
    plane: Address
    otherwise: Address
    otherwise_record: Address
    x_image_bytes: Word
    w_image_bytes: Word
    group_pairs: Word
    w_line_bytes: Word
    line_steps: Word
    panel_lines: Word
    panel_bytes: Word
    plane_bytes: Word
    part_bytes: Word
    row_bytes: Word
    plane_lines: Word
    plane_line_bytes: Word
    lines: Word
    line_bytes: Word
    line_unit: Word
    run_elements: Word
    run_bytes: Word
    run_plane_bytes: Word
    plane_pair_bytes: Word
    out_feature_bytes: Word
    dense: Word
    instance_count: Word
    panel_count: Word
    phase_count: Word
    tap_count: Word
    panel_stride: Word
    instances: Listed
    panels: Listed
    phases: Listed
    taps: Listed
    positions: Listed
    left_steps: Listed
    right_steps: Listed
    offsets: Listed
    lane_offsets: Listed


#: Number of words of an instance and of a tap.
_INSTANCE, _TAP = (f"[{size} x i64]" for size in (5, 4))


@cache
def gradient_code() -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32, which takes the address of a GradientRecord."""
    module = product_module(transposed=True)
    add_packing(module, GradientRecord)
    _add_multiply_panel(module)
    _add_convolve(module)
    ir = or_otherwise(module, FUNCTION, GradientRecord)
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


def _add_multiply_panel(module: Module) -> None:
    """Add ``multiply_panel``(record, out, channels, features, panel, adds, total, pending).

    The function computes all products of one panel, for ``channels`` and ``features`` of an instance.
    """
    kinds = ("ptr", "i64", "i64", "ptr", "i1", "ptr", "ptr")
    f = internal_function(module, "multiply_panel", *kinds, record=GradientRecord)
    rec, (_, out, channels, features, panel, adds, total, pending) = f.record, f.parameters
    row_bytes, part_bytes, panel_bytes = rec.row_bytes, rec.part_bytes, rec.panel_bytes
    outputs = panel.element("i64", PANEL_WORDS)
    with f.loop(rec.tap_count) as t:
        output, plane_offset, width, first_offset = map(rec.taps.element(_TAP, t).word, range(4))
        first_step, steps = map(outputs.element("[2 x i64]", output).word, range(2))
        left_steps, right_steps = (
            table.element("i64", first_step) for table in (rec.left_steps, rec.right_steps)
        )
        plane, offsets = rec.plane.at(plane_offset), rec.offsets.element("i64", first_offset)
        columns = width.equals(0).select(channels, width)
        with f.loop(columns, step=32) as c, f.loop(features, step=32) as feature:
            block = rec.left.at((feature >> 5) * panel_bytes)
            left = (block, 64, TILE_BYTES, 2 * TILE_BYTES, left_steps)
            right = (plane.element("i32", c), row_bytes, 64, part_bytes, right_steps)
            to = out.at(feature * rec.out_feature_bytes), offsets.element("i64", c)
            sums = (steps, total, pending, *to, features - feature, columns - c, adds)
            f.call("void", "product", *left, *right, *sums)
    f.finish()


def _add_convolve(module: Module) -> None:
    """Add ``convolve``(record), which returns whether all numbers were in the unit's range."""
    f = internal_function(module, "convolve", record=GradientRecord, result="i1")
    rec, (record_at,) = f.record, f.parameters
    most, rows = f.variable(INTS, align=64), f.array(2 * TILE_BYTES, "i8")
    total, pending = begin(f)
    most.store(zeros(f, INTS))
    f.memset(rec.plane, rec.plane_bytes)
    f.call("void", "llvm.x86.ldtilecfg", Pointer(f, "@tile_config"))
    with f.loop(rec.instance_count) as g:
        x_offset, w_offset, out_offset, channels, features = map(
            rec.instances.element(_INSTANCE, g).word, range(5)
        )
        x, w, out = rec.x.at(x_offset), rec.w.at(w_offset), rec.out.at(out_offset)
        with f.loop(rec.panel_count) as p:
            panel = rec.panels.element("i64", p * rec.panel_stride)
            f.call("void", "pack_left", record_at, w, features, panel, rows, most)
            f.call("void", "load_plane", record_at, x, channels, panel, most)
            given = (out, channels, features, panel, p.differs(0), total, pending)
            f.call("void", "multiply_panel", record_at, *given)
    finish(f, total, pending)
    f.call("void", "llvm.x86.tilerelease")
    f.ret(is_within(f, most))
    f.finish()
