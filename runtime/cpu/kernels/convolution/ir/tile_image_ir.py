"""Native code of a convolution on the tile unit without a patch matrix.

The lines of the input are split into parts (see tile_pieces_ir) once, into planes with zero padding in which output
positions have a constant stride ``row_bytes``. The 16 rows of a tile are 16 positions. An element of the window is at
the same offset from each of them, so the left operand of every product of tiles is read from the planes without
packing. The right operand is the kernel, packed into tiles by pairs of elements.

The positions of one product are a *unit*. A unit is either a line of a group of images that fills tiles, which skips
lines of padding, or an entire panel of consecutive lines and images, in which some positions belong to no output.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, zeros
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.convolution.ir.tile_block_ir import product_module
from runtime.cpu.kernels.convolution.ir.tile_image_pack_ir import PART_WORDS, add_packing
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, is_within, or_otherwise
from runtime.cpu.kernels.convolution.ir.tile_store_ir import begin, finish
from runtime.cpu.kernels.gemm.tile_types import INTS, TILE_BYTES
from runtime.program.argument_record import Address, Listed, Record, Word, record

FUNCTION = "spmd_convolve_image"


@record
class ImageRecord(Record):
    """Record of one convolution; offsets and strides are in bytes.

    Line l of a panel is line l modulo ``image_lines`` of group l / ``image_lines`` of ``group_images`` images. It holds
    line (l + first) * line_step + shift of the images, or zeros.

    ``phases`` lists (shift, offset of its columns in a line of the input and in one of the planes, number of runs of
    ``run_elements`` elements). ``otherwise`` is the fallback code for too large numbers, and ``otherwise_record`` its
    record. ``instances`` lists (offsets of input, kernel and output, 1 if products are accumulated). ``panels`` lists
    (offsets of images and output, first line, lines, groups, first unit, number of units). ``units`` lists (part,
    offsets in the planes and in the output, positions, first step, steps). ``parts`` lists (steps, offset of the packed
    kernel, and the addresses of three tables: the offset of each position in the output, the offset of each step in the
    planes, and the elements of the kernel of each step by ``kernel_addressing``). ``right_steps`` gives the offsets of
    packed steps. ``lane_offsets`` gives the offsets of a block's 32 features in the output; ``dense`` tells that these
    are contiguous.
    """

    x: Address
    w: Address
    out: Address
    planes: Address
    packed: Address
    otherwise: Address
    otherwise_record: Address
    plane_bytes: Word
    part_bytes: Word
    row_bytes: Word
    image_lines: Word
    image_bytes: Word
    group_images: Word
    lines: Word
    line_bytes: Word
    line_step: Word
    run_elements: Word
    run_bytes: Word
    run_plane_bytes: Word
    plane_image_bytes: Word
    plane_line_bytes: Word
    plane_phase_bytes: Word
    features: Word
    feature_bytes: Word
    block_features: Word
    out_feature_bytes: Word
    dense: Word
    kernel_addressing: Word
    phase_count: Word
    instance_count: Word
    panel_count: Word
    part_count: Word
    phases: Listed
    instances: Listed
    panels: Listed
    units: Listed
    lane_offsets: Listed
    parts: Listed
    right_steps: Listed


#: Number of words of an instance, of a panel and of a unit.
_INSTANCE, _PANEL, _UNIT = (f"[{size} x i64]" for size in (4, 7, 6))


@cache
def image_code() -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32, which takes the address of an ImageRecord."""
    module = product_module(transposed=False)
    add_packing(module, ImageRecord)
    _add_multiply_units(module)
    _add_convolve(module)
    ir = or_otherwise(module, FUNCTION, ImageRecord)
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


def _add_multiply_units(module: Module) -> None:
    """Add ``multiply_units``(record, out, panel, count, adds, total, pending).

    The function computes a panel's outputs of ``count`` features, unit by unit.
    """
    kinds = ("ptr", "ptr", "i64", "i1", "ptr", "ptr")
    f = internal_function(module, "multiply_units", *kinds, record=ImageRecord)
    rec, (_, out, panel, count, adds, total, pending) = f.record, f.parameters
    out_feature_bytes, part_bytes, row_bytes = rec.out_feature_bytes, rec.part_bytes, rec.row_bytes
    units, unit_count = rec.units.element(_UNIT, panel.word(5)), panel.word(6)
    packed, planes, right_steps = rec.packed, rec.planes, rec.right_steps
    with f.loop(unit_count) as u:
        unit = units.element(_UNIT, u)
        number, plane_offset, out_offset, positions, first_step, steps = map(unit.word, range(6))
        part = rec.parts.element(f"[{PART_WORDS} x i64]", number)
        outputs, left_steps = part.pointer(2), part.pointer(3).element("i64", first_step)
        kernel = packed.at(part.word(1) + first_step * F32_TYPES.step_bytes)
        plane, out_u = planes.at(plane_offset), out.at(out_offset)
        with f.loop(positions, step=32) as q, f.loop(count, step=32) as feature:
            left = (plane.at(q * row_bytes), row_bytes, row_bytes * 16, part_bytes, left_steps)
            block = kernel.at((feature >> 5) * part.word(0) * F32_TYPES.step_bytes)
            right = (block, 64, TILE_BYTES, 2 * TILE_BYTES, right_steps)
            to = out_u.at(feature * out_feature_bytes), outputs.element("i64", q)
            sums = (steps, total, pending, *to, positions - q, count - feature, adds)
            f.call("void", "product", *left, *right, *sums)
    f.finish()


def _add_convolve(module: Module) -> None:
    """Add ``convolve``(record), which returns whether all numbers were in the unit's range."""
    f = internal_function(module, "convolve", record=ImageRecord, result="i1")
    rec, (record_at,) = f.record, f.parameters
    most = f.variable(INTS, align=64)
    total, pending = begin(f)
    panel_count, features, block_features = rec.panel_count, rec.features, rec.block_features
    most.store(zeros(f, INTS))
    f.memset(rec.planes, rec.plane_bytes)
    f.call("void", "llvm.x86.ldtilecfg", Pointer(f, "@tile_config"))
    with f.loop(rec.instance_count) as g:
        x_offset, w_offset, out_offset, adding = map(
            rec.instances.element(_INSTANCE, g).word, range(4)
        )
        with f.loop(features, step=block_features) as feature:
            count = (features - feature).umin(block_features)
            w = rec.w.at(w_offset).at(feature * rec.feature_bytes)
            f.call("void", "pack_kernel", record_at, w, count, most)
            keeps_planes = feature.differs(0) & panel_count.equals(1)
            with f.loop(panel_count) as p:
                panel = rec.panels.element(_PANEL, p)
                with f.when(~keeps_planes):
                    f.call("void", "load_panel", record_at, rec.x.at(x_offset), panel, most)
                out = rec.out.at(out_offset).at(feature * rec.out_feature_bytes).at(panel.word(1))
                given = (out, panel, count, adding.differs(0), total, pending)
                f.call("void", "multiply_units", record_at, *given)
    finish(f, total, pending)
    f.call("void", "llvm.x86.tilerelease")
    f.ret(is_within(f, most))
    f.finish()
