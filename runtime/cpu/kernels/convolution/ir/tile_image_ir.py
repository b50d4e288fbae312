"""Native code of a convolution on the tile unit that reads the input where it lies: no patch matrix is made.

The input's lines are split into parts (see tile_pieces_ir) once, into planes in which padding is zeros and
every output position is the same distance from its neighbour: position q begins ``row_bytes`` after q - 1. A tile's 16
rows are 16 positions; under an element of the window they all lie the same way off. So the left operand of every
product of tiles is read from the planes as it is. The right one is the kernel, packed into tiles by pairs of elements.

Positions that are multiplied together are a *unit*: a line, of several images side by side so that it fills tiles, for
which lines of padding are no products; or a whole panel, whose lines and images run on, so that some of its positions
are of no output.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from runtime.codegen.ir.record_words import WORDS, RecordLayout, Words, again, with_lists
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.convolution.ir.tile_block_ir import product_ir
from runtime.cpu.kernels.convolution.ir.tile_image_pack_ir import PART_WORDS, KernelForm, packing_ir
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import FORM, TILES, or_otherwise_ir
from runtime.cpu.kernels.convolution.ir.tile_store_ir import begin_ir
from runtime.cpu.kernels.gemm.tile_types import TILE_BYTES
from spmd.literal import NDArray

FUNCTION = "spmd_convolve_image"


@dataclass(frozen=True, slots=True)
class ImageWords:
    """The record of one convolution, in words of 64 bits, then the lists that the last fields are the addresses of.

    Bytes unless said. Line l of a panel is line l modulo ``image_lines`` of group l / ``image_lines`` of ``together``
    images, and holds line (l + first) * line_step + shift of the images, or zeros where there is none. phases: (shift,
    where its columns begin in a line of the input and in one of the planes, how many runs of ``run_elements`` elements
    these are). otherwise: code and record of what runs instead where numbers are too large. instances: (input, kernel,
    output, whether products are added to what is there). panels: (images, output, first, lines, groups, first unit,
    number of units). units: (part, where it begins in the planes and in the output, positions, first step, steps).
    parts: (number of steps, where its kernel is packed, then addresses of its positions' outputs, of its steps' places
    in the planes, and of each step's elements in the kernel, as ``kernel_form`` says: the places of 32 of them, -1 for
    none; the first one's place and how many follow each other; or places of 32 by 16 features). right_steps: packed
    steps' places. lane_places: of a block's 32 features in the output; dense: whether they follow each other.
    """

    x: int
    w: int
    out: int
    planes: int
    packed: int
    otherwise: int
    otherwise_record: int
    plane_bytes: int
    part_bytes: int
    row_bytes: int
    image_lines: int
    image_bytes: int
    together: int
    lines: int
    line_bytes: int
    line_step: int
    run_elements: int
    run_bytes: int
    run_plane_bytes: int
    plane_image_bytes: int
    plane_line_bytes: int
    plane_phase_bytes: int
    features: int
    feature_bytes: int
    block_features: int
    out_feature_bytes: int
    dense: bool
    kernel_form: KernelForm
    phases: tuple[tuple[int, int, int, int], ...]
    instances: tuple[tuple[int, int, int, int], ...]
    panels: tuple[tuple[int, ...], ...]
    units: tuple[tuple[int, ...], ...]
    lane_places: tuple[int, ...]
    parts: tuple[tuple[int, int, Words, Words, Words], ...]
    right_steps: tuple[int, ...]

    def packed_at(self, address: int) -> NDArray:
        """The words as they lie in memory at ``address``; behind all else the tables that the parts' words point to."""
        numbers = [int(getattr(self, name)) for name in _NUMBERS]
        counts = [len(self.phases), len(self.instances), len(self.panels), len(self.parts)]
        lists: list[Words] = [
            *(
                [word for row in rows for word in row]
                for rows in (self.phases, self.instances, self.panels, self.units)
            ),
            self.lane_places,
            self.right_steps,
        ]
        tables = [table for part in self.parts for table in part[2:]]
        before = len(_RECORD.names) + sum(map(len, lists)) + PART_WORDS * len(self.parts)
        places = address + 8 * (before + np.cumsum([0, *map(len, tables)]))
        parts = [
            word
            for i, (steps, place, *_) in enumerate(self.parts)
            for word in (steps, place, *places[3 * i : 3 * i + 3])
        ]
        words = with_lists([*numbers, *counts], [*lists, parts], address)
        return np.concatenate([words, *(np.asarray(table, np.int64) for table in tables)])


PANEL_WORDS, UNIT_WORDS = 7, 6
_LISTS = ("phases", "instances", "panels", "units", "lane_places", "right_steps", "parts")
_NUMBERS = tuple(field.name for field in fields(ImageWords) if field.name not in _LISTS)
_RECORD = RecordLayout(
    (*_NUMBERS, "phase_count", "instance_count", "panel_count", "part_count", *_LISTS),
    frozenset({"x", "w", "out", "planes", "packed", "otherwise", "otherwise_record", *_LISTS}),
)
_words = _RECORD.read


@cache
def image_code() -> NativeLibrary:
    """``FUNCTION`` for f32: takes the address of packed words."""
    return host_jit().compile(
        WORDS
        + TILES
        + product_ir(turned=False)
        + packing_ir(_words)
        + _IR
        + or_otherwise_ir(FUNCTION, _words),
        (FUNCTION,),
        passes=Passes.TIDY,
    )


_IR = f"""
; a panel's outputs of %count features, unit by unit
define internal void @multiply_units(ptr %record, ptr %out, ptr %panel, i64 %count, i1 %adds,
    ptr %total, ptr %pending) noinline {{
entry:
{_words("out_feature_bytes", "planes", "packed", "part_bytes", "row_bytes", "right_steps", "parts", "units")}
  %first_unit = call i64 @word(ptr %panel, i64 5)
  %unit_count = call i64 @word(ptr %panel, i64 6)
  %first_way = mul i64 %first_unit, {UNIT_WORDS}
  %panel_units = getelementptr i64, ptr %units, i64 %first_way
  %tile_bytes = mul i64 %row_bytes, 16
  br label %unit
unit:
  %u = phi i64 [ 0, %entry ], [ %next_u, %unit_done ]
  %unit_way = mul i64 %u, {UNIT_WORDS}
  %unit_at = getelementptr i64, ptr %panel_units, i64 %unit_way
  %part_number = call i64 @word(ptr %unit_at, i64 0)
  %plane_offset = call i64 @word(ptr %unit_at, i64 1)
  %out_offset = call i64 @word(ptr %unit_at, i64 2)
  %positions = call i64 @word(ptr %unit_at, i64 3)
  %first_step = call i64 @word(ptr %unit_at, i64 4)
  %steps = call i64 @word(ptr %unit_at, i64 5)
  %part_way = mul i64 %part_number, {PART_WORDS}
  %part = getelementptr i64, ptr %parts, i64 %part_way
  %part_steps = call i64 @word(ptr %part, i64 0)
  %place = call i64 @word(ptr %part, i64 1)
  %outputs = call ptr @pointer(ptr %part, i64 2)
  %part_left = call ptr @pointer(ptr %part, i64 3)
  %left_steps = getelementptr i64, ptr %part_left, i64 %first_step
  %skipped = mul i64 %first_step, {FORM.step_bytes}
  %kernel_place = add i64 %place, %skipped
  %kernel = getelementptr i8, ptr %packed, i64 %kernel_place
  %plane = getelementptr i8, ptr %planes, i64 %plane_offset
  %out_u = getelementptr i8, ptr %out, i64 %out_offset
  br label %rows
rows:
  %q = phi i64 [ 0, %unit ], [ %next_q, %rows_done ]
  %q_left = sub i64 %positions, %q
  %q_way = mul i64 %q, %row_bytes
  %a = getelementptr i8, ptr %plane, i64 %q_way
  %places = getelementptr i64, ptr %outputs, i64 %q
  br label %columns
columns:
  %f = phi i64 [ 0, %rows ], [ %next_f, %columns ]
  %f_left = sub i64 %count, %f
  %block = lshr i64 %f, 5
  %block_steps = mul i64 %block, %part_steps
  %block_way = mul i64 %block_steps, {FORM.step_bytes}
  %b = getelementptr i8, ptr %kernel, i64 %block_way
  %f_way = mul i64 %f, %out_feature_bytes
  %to = getelementptr i8, ptr %out_u, i64 %f_way
  call void @product(ptr %a, i64 %row_bytes, i64 %tile_bytes, i64 %part_bytes, ptr %left_steps,
    ptr %b, i64 64, i64 {TILE_BYTES}, i64 {2 * TILE_BYTES}, ptr %right_steps, i64 %steps, ptr %total, ptr %pending,
    ptr %to, ptr %places, i64 %q_left, i64 %f_left, i1 %adds)
{again("f", "count", "columns", "rows_done", 32)}
rows_done:
{again("q", "positions", "rows", "unit_done", 32)}
unit_done:
{again("u", "unit_count", "unit", "end")}
end:
  ret void
}}

define internal i1 @convolve(ptr %record) noinline {{
entry:
  %most = alloca <16 x i32>, align 64
{_words("x", "w", "out", "planes", "plane_bytes", "features", "feature_bytes", "block_features", "out_feature_bytes")}
{_words("instance_count", "instances", "panel_count", "panels", "lane_places", "dense")}
{begin_ir("%lane_places", "%dense")}
  %one_panel = icmp eq i64 %panel_count, 1
  store <16 x i32> zeroinitializer, ptr %most
  call void @llvm.memset.p0.i64(ptr %planes, i8 0, i64 %plane_bytes, i1 false)
  call void @llvm.x86.ldtilecfg(ptr @tile_config)
  br label %instance
instance:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %g4 = mul i64 %g, 4
  %places = getelementptr i64, ptr %instances, i64 %g4
  %x_offset = call i64 @word(ptr %places, i64 0)
  %w_offset = call i64 @word(ptr %places, i64 1)
  %out_offset = call i64 @word(ptr %places, i64 2)
  %adding = call i64 @word(ptr %places, i64 3)
  %adds = icmp ne i64 %adding, 0
  %x_g = getelementptr i8, ptr %x, i64 %x_offset
  %w_g = getelementptr i8, ptr %w, i64 %w_offset
  %out_g = getelementptr i8, ptr %out, i64 %out_offset
  br label %block
block:
  %f = phi i64 [ 0, %instance ], [ %next_f, %block_done ]
  %f_left = sub i64 %features, %f
  %count = call i64 @llvm.umin.i64(i64 %f_left, i64 %block_features)
  %f_way = mul i64 %f, %feature_bytes
  %w_f = getelementptr i8, ptr %w_g, i64 %f_way
  %out_way = mul i64 %f, %out_feature_bytes
  %out_f = getelementptr i8, ptr %out_g, i64 %out_way
  call void @pack_kernel(ptr %record, ptr %w_f, i64 %count, ptr %most)
  %again = icmp ne i64 %f, 0
  %keeps = and i1 %again, %one_panel
  br label %panel
panel:
  %p = phi i64 [ 0, %block ], [ %next_p, %multiply ]
  %panel_way = mul i64 %p, {PANEL_WORDS}
  %panel_at = getelementptr i64, ptr %panels, i64 %panel_way
  %panel_out = call i64 @word(ptr %panel_at, i64 1)
  %out_p = getelementptr i8, ptr %out_f, i64 %panel_out
  br i1 %keeps, label %multiply, label %load
load:
  call void @load_panel(ptr %record, ptr %x_g, ptr %panel_at, ptr %most)
  br label %multiply
multiply:
  call void @multiply_units(ptr %record, ptr %out_p, ptr %panel_at, i64 %count, i1 %adds, ptr %total, ptr %pending)
{again("p", "panel_count", "panel", "block_done")}
block_done:
{again("f", "features", "block", "instance_done", "%block_features")}
instance_done:
{again("g", "instance_count", "instance", "end")}
end:
  call void @finish(ptr %total, ptr %pending)
  call void @llvm.x86.tilerelease()
  %is_right = call i1 @within(ptr %most)
  ret i1 %is_right
}}
"""
