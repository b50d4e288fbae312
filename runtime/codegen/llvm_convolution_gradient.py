"""Native code of a convolution whose window is large and whose output is small: the gradient of a kernel.

    out[c, o, f] = sum over n, j of x[c, j * dilation + o * stride - padding, n] * w[j, n, f]

Depth is made of positions v of x (those of one phase modulo the dilation) and of images n, two of them a pair. x is
split and packed into tiles once. w is split into a plane with zeros around it, in which an output o meets all positions
at the same distance, so that the right operand of every product of tiles is read from the plane as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from runtime.codegen.llvm_convolution_gradient_packing import PANEL_WORDS, packing_ir
from runtime.codegen.llvm_convolution_record import RecordLayout, Words, with_lists
from runtime.codegen.llvm_convolution_tiles import TILES, or_otherwise_ir
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_passes import Passes
from runtime.codegen.llvm_tiles import TILE_BYTES
from runtime.codegen.llvm_words import WORDS, again
from spmd.literal import NDArray

FUNCTION = "spmd_convolve_gradient"


@dataclass(frozen=True, slots=True)
class GradientWords:
    """The record of one convolution: words of 64 bits, then the lists that the last fields are the addresses of.

    Bytes unless said. Of x, an element's place is that of its image, of its position and of its channel, one of which
    follows the other. Of w a line is ``runs`` runs of ``run_elements`` elements, or, where these are 0, of an
    instance's features. pair_steps: of 16 positions of a pair of images each. instances: (x, w, out, channels,
    features). panels: (images of x, images of w, number of images, first line) and for each phase the number of
    positions. positions: each phase's, places in x, -1 for none. taps: (phase, place in the plane, place in out).
    left_steps, right_steps: places of each step's tiles. places: of each channel in out.
    """

    x: int
    w: int
    out: int
    left: int
    plane: int
    otherwise: int
    otherwise_record: int
    x_image_bytes: int
    w_image_bytes: int
    phase_bytes: int
    panel_bytes: int
    phase_positions: int
    pair_steps: int
    plane_bytes: int
    part_bytes: int
    pair_bytes: int
    row_bytes: int
    plane_lines: int
    plane_line_bytes: int
    lines: int
    line_bytes: int
    runs: int
    run_elements: int
    run_bytes: int
    run_plane_bytes: int
    skipped_bytes: int
    plane_skipped_bytes: int
    shown_bytes: int
    out_feature_bytes: int
    instances: tuple[tuple[int, ...], ...]
    panels: tuple[tuple[int, ...], ...]
    taps: tuple[tuple[int, int, int], ...]
    positions: Words
    left_steps: Words
    right_steps: Words
    places: Words

    def packed_at(self, address: int) -> NDArray:
        """The words as they lie in memory at ``address``."""
        names = [field.name for field in fields(self) if field.name not in _LISTS]
        phases = len(self.panels[0]) - PANEL_WORDS
        counts = [len(self.instances), len(self.panels), len(self.taps), phases]
        flat = [
            [word for row in rows for word in row]
            for rows in (self.instances, self.panels, self.taps)
        ]
        lists = [*flat, self.positions, self.left_steps, self.right_steps, self.places]
        return with_lists([*(getattr(self, name) for name in names), *counts], lists, address)


#: Words of an instance and of a tap.
INSTANCE_WORDS, TAP_WORDS = 5, 3
_LISTS = ("instances", "panels", "taps", "positions", "left_steps", "right_steps", "places")
_RECORD = RecordLayout(
    (
        *(field.name for field in fields(GradientWords) if field.name not in _LISTS),
        *("instance_count", "panel_count", "tap_count", "phase_count"),
        *_LISTS,
    ),
    frozenset({"x", "w", "out", "left", "plane", "otherwise", "otherwise_record", *_LISTS}),
)
_words = _RECORD.read


@cache
def gradient_code() -> NativeLibrary:
    """``FUNCTION`` for f32: takes the address of packed words."""
    return host_jit().compile(
        WORDS + TILES + packing_ir(_words) + _IR + or_otherwise_ir(FUNCTION, _words),
        (FUNCTION,),
        passes=Passes.TIDY,
    )


_IR = f"""
; all products of one panel
define internal void @multiply_panel(ptr %record, ptr %out, i64 %channels, i64 %features, i64 %images, i1 %adds,
    ptr %total) noinline {{
entry:
{_words("left", "plane", "phase_bytes", "panel_bytes", "pair_steps", "part_bytes", "row_bytes", "out_feature_bytes")}
{_words("tap_count", "taps", "left_steps", "right_steps", "places")}
  %rounded = add i64 %images, 1
  %pairs = lshr i64 %rounded, 1
  %steps = mul i64 %pairs, %pair_steps
  br label %tap
tap:
  %t = phi i64 [ 0, %entry ], [ %next_t, %tap_done ]
  %t_way = mul i64 %t, {TAP_WORDS}
  %tap_words = getelementptr i64, ptr %taps, i64 %t_way
  %phase = call i64 @word(ptr %tap_words, i64 0)
  %plane_offset = call i64 @word(ptr %tap_words, i64 1)
  %out_offset = call i64 @word(ptr %tap_words, i64 2)
  %phase_way = mul i64 %phase, %phase_bytes
  %left_t = getelementptr i8, ptr %left, i64 %phase_way
  %plane_t = getelementptr i8, ptr %plane, i64 %plane_offset
  %out_t = getelementptr i8, ptr %out, i64 %out_offset
  br label %channel
channel:
  %c = phi i64 [ 0, %tap ], [ %next_c, %channel_done ]
  %c_left = sub i64 %channels, %c
  %half = lshr i64 %c, 5
  %half_way = mul i64 %half, %panel_bytes
  %a = getelementptr i8, ptr %left_t, i64 %half_way
  %places_c = getelementptr i64, ptr %places, i64 %c
  br label %feature
feature:
  %f = phi i64 [ 0, %channel ], [ %next_f, %feature_done ]
  %f_left = sub i64 %features, %f
  %b = getelementptr i32, ptr %plane_t, i64 %f
  %f_way = mul i64 %f, %out_feature_bytes
  %to = getelementptr i8, ptr %out_t, i64 %f_way
  call void @product(ptr %a, i64 64, i64 {TILE_BYTES}, i64 {2 * TILE_BYTES}, ptr %left_steps,
    ptr %b, i64 %row_bytes, i64 64, i64 %part_bytes, ptr %right_steps, i64 %steps, ptr %total,
    ptr %to, i64 %out_feature_bytes, ptr %places_c, i64 %c_left, i64 %f_left, i1 %adds)
  br label %feature_done
feature_done:
{again("f", "features", "feature", "channel_done", 32)}
channel_done:
{again("c", "channels", "channel", "tap_done", 32)}
tap_done:
{again("t", "tap_count", "tap", "end")}
end:
  ret void
}}

define internal i1 @convolve(ptr %record) noinline {{
entry:
  %total = alloca [4096 x i8], align 64
  %most = alloca <16 x i32>, align 64
{_words("x", "w", "out", "plane", "plane_bytes", "instance_count", "instances", "panel_count", "panels", "phase_count")}
  %panel_words = add i64 %phase_count, {PANEL_WORDS}
  store <16 x i32> zeroinitializer, ptr %most
  call void @llvm.memset.p0.i64(ptr %plane, i8 0, i64 %plane_bytes, i1 false)
  call void @llvm.x86.ldtilecfg(ptr @tile_config)
  br label %instance
instance:
  %g = phi i64 [ 0, %entry ], [ %next_g, %instance_done ]
  %g_way = mul i64 %g, {INSTANCE_WORDS}
  %instance_words = getelementptr i64, ptr %instances, i64 %g_way
  %x_offset = call i64 @word(ptr %instance_words, i64 0)
  %w_offset = call i64 @word(ptr %instance_words, i64 1)
  %out_offset = call i64 @word(ptr %instance_words, i64 2)
  %channels = call i64 @word(ptr %instance_words, i64 3)
  %features = call i64 @word(ptr %instance_words, i64 4)
  %x_g = getelementptr i8, ptr %x, i64 %x_offset
  %w_g = getelementptr i8, ptr %w, i64 %w_offset
  %out_g = getelementptr i8, ptr %out, i64 %out_offset
  br label %panel
panel:
  %p = phi i64 [ 0, %instance ], [ %next_p, %panel ]
  %panel_way = mul i64 %p, %panel_words
  %panel_at = getelementptr i64, ptr %panels, i64 %panel_way
  %images = call i64 @word(ptr %panel_at, i64 2)
  call void @pack_left(ptr %record, ptr %x_g, i64 %channels, ptr %panel_at, ptr %most)
  call void @load_plane(ptr %record, ptr %w_g, i64 %features, ptr %panel_at, ptr %most)
  %adds = icmp ne i64 %p, 0
  call void @multiply_panel(ptr %record, ptr %out_g, i64 %channels, i64 %features, i64 %images, i1 %adds, ptr %total)
{again("p", "panel_count", "panel", "instance_done")}
instance_done:
{again("g", "instance_count", "instance", "end")}
end:
  call void @llvm.x86.tilerelease()
  %is_right = call i1 @within(ptr %most)
  ret i1 %is_right
}}
"""
