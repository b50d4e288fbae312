"""Native code of convolutions with few output features: vectors hold channels, and their horizontal sums are results.

One function serves all convolutions of an element type and number of features. Several positions of a line are computed
at a time, for all features, so that each loaded vector of the kernel is used for all of them. A convolution may have
several phases, convolutions of the same input with different outputs: they alternate line by line, so that the input
stays in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.record_loads import RECORD_LOADS, again, read
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.codegen.record import Address, Listed, Record, Word, field_names, record
from runtime.cpu.kernels.gemm.native_dot import host_registers
from spmd.shape import PrimitiveType

FUNCTION = "spmd_convolve_thin"
#: Most positions at a time: each needs an address.
MOST_POSITIONS = 8


@record
class ThinRecord(Record):
    """instances: (address in x, number of the group, offset in the results). phases: addresses of their records."""

    instance_count: Word
    most_lines: Word
    phase_count: Word
    instances: Listed
    phases: Listed


@record
class PhaseRecord(Record):
    """w[g, tap.., f, c], contiguous in channels. zeros: as many zeros as channels.

    lines: of results, (offset in out, begin and end of its entries); entries: lines of the window that are inside the
    input, (offset in x, offset in w). columns: for every tap, the offsets of positions in a line of x, or -1.
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
    """Sums in registers: of several positions, for all features."""

    kind: PrimitiveType
    features: int

    @property
    def lanes(self) -> int:
        return host_registers().bytes // self.kind.byte_size

    @property
    def positions(self) -> int:
        return max(min(MOST_POSITIONS, host_registers().sums // self.features), 1)

    @property
    def count(self) -> int:
        return self.positions * self.features

    @property
    def scalar(self) -> str:
        return {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}[self.kind]

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}f{8 * self.kind.byte_size}"


@cache
def thin_code(kind: PrimitiveType, features: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32 or f64, which takes the address of a ThinRecord."""
    return host_jit().compile(thin_ir(Lanes(kind, features)), (FUNCTION,), passes=Passes.TIDY)


def thin_ir(sums: Lanes) -> str:
    return f"""{RECORD_LOADS}
declare {sums.vector} @llvm.masked.load.{sums.suffix}.p0(ptr, i32, <{sums.lanes} x i1>, {sums.vector})
declare {sums.vector} @llvm.fmuladd.{sums.suffix}({sums.vector}, {sums.vector}, {sums.vector})
declare i64 @llvm.umin.i64(i64, i64)
{_line_ir(sums)}
define void @{FUNCTION}(ptr %record) {{
entry:
{read(ThinRecord, *field_names(ThinRecord))}
  br label %instance
instance:
  %i = phi i64 [ 0, %entry ], [ %next_i, %instance_done ]
  %instance_way = mul i64 %i, 3
  %instance_at = getelementptr i64, ptr %instances, i64 %instance_way
  %x = call ptr @pointer(ptr %instance_at, i64 0)
  %group = call i64 @word(ptr %instance_at, i64 1)
  %out_way = call i64 @word(ptr %instance_at, i64 2)
  br label %line
line:
  %l = phi i64 [ 0, %instance ], [ %next_l, %line_done ]
  br label %phase
phase:
  %p = phi i64 [ 0, %line ], [ %next_p, %phase ]
  %own = call ptr @pointer(ptr %phases, i64 %p)
  call void @line(ptr %own, ptr %x, i64 %group, i64 %out_way, i64 %l)
{again("p", "phase_count", "phase", "line_done")}
line_done:
{again("l", "most_lines", "line", "instance_done")}
instance_done:
{again("i", "instance_count", "instance", "end")}
end:
  ret void
}}
"""


def _line_ir(sums: Lanes) -> str:
    """Return ``@line``, which computes a line of results if the phase has it."""
    each, positions = range(sums.count), range(sums.positions)
    vector, lanes, item = sums.vector, sums.lanes, sums.kind.byte_size

    def phis(name: str, *sources: tuple[str, str]) -> str:
        """Return phis %{name}0, .. of these sums (or zero) from these blocks."""
        return "\n".join(
            f"  %{name}{i} = phi {vector} "
            + ", ".join(
                f"[ {'zeroinitializer' if own == 'zero' else f'%{own}{i}'}, %{block} ]"
                for own, block in sources
            )
            for i in each
        )

    def of_positions(text: str) -> str:
        return "\n".join(text.replace("#", str(p)) for p in positions)

    def of_features(text: str) -> str:
        return "\n".join(text.replace("#", str(f)) for f in range(sums.features))

    def products(name: str, new: str, load: Callable[[str, str], str]) -> str:
        """Return lines that add products of the next channels to %{name}0, .., giving %{new}0, .."""
        lines = [load(f"{new}_w{f}", f"w{f}") for f in range(sums.features)]
        for p in positions:
            lines.append(load(f"{new}_x{p}", f"x{p}"))
            for f in range(sums.features):
                i = p * sums.features + f
                lines.append(
                    f"  %{new}{i} = call {vector} @llvm.fmuladd.{sums.suffix}("
                    f"{vector} %{new}_x{p}, {vector} %{new}_w{f}, {vector} %{name}{i})"
                )
        return "\n".join(lines)

    def full_vector(name: str, pointer: str) -> str:
        return (
            f"  %{name}_at = getelementptr {sums.scalar}, ptr %{pointer}, i64 %c\n"
            f"  %{name} = load {vector}, ptr %{name}_at, align {item}"
        )

    def part(name: str, pointer: str) -> str:
        return (
            f"  %{name}_at = getelementptr {sums.scalar}, ptr %{pointer}, i64 %full\n"
            f"  %{name} = call {vector} @llvm.masked.load.{sums.suffix}.p0("
            f"ptr %{name}_at, i32 {item}, <{lanes} x i1> %mask, {vector} zeroinitializer)"
        )

    numbers = ", ".join(f"i32 {k}" for k in range(lanes))
    return f"""
define internal void @line(ptr %record, ptr %x, i64 %group, i64 %out_way, i64 %line) noinline {{
entry:
{read(PhaseRecord, "line_count", "lines")}
  %is_there = icmp ult i64 %line, %line_count
  br i1 %is_there, label %there, label %end
there:
{
        read(
            PhaseRecord,
            "w",
            "w_group_bytes",
            "w_column_bytes",
            "w_feature_bytes",
            "channels",
            "zeros",
            "out",
        )
    }
{
        read(
            PhaseRecord,
            "out_column_bytes",
            "out_feature_bytes",
            "entries",
            "width",
            "column_taps",
            "columns",
        )
    }
  %w_way = mul i64 %group, %w_group_bytes
  %w_group = getelementptr i8, ptr %w, i64 %w_way
  %three = mul i64 %line, 3
  %own = getelementptr i64, ptr %lines, i64 %three
  %line_way = call i64 @word(ptr %own, i64 0)
  %first = call i64 @word(ptr %own, i64 1)
  %behind = call i64 @word(ptr %own, i64 2)
  %any = icmp ult i64 %first, %behind
  %out_image = getelementptr i8, ptr %out, i64 %out_way
  %out_line = getelementptr i8, ptr %out_image, i64 %line_way
  %last = sub i64 %width, 1
  %full = and i64 %channels, -{lanes}
  %left = and i64 %channels, {lanes - 1}
  %any_full = icmp ne i64 %full, 0
  %any_left = icmp ne i64 %left, 0
  %left_narrow = trunc i64 %left to i32
  %left_one = insertelement <{lanes} x i32> poison, i32 %left_narrow, i32 0
  %left_all = shufflevector <{lanes} x i32> %left_one, <{lanes} x i32> poison, <{
        lanes
    } x i32> zeroinitializer
  %mask = icmp sgt <{lanes} x i32> %left_all, <{numbers}>
  br label %block
block:
  %v = phi i64 [ 0, %there ], [ %next_v, %sums ]
{of_positions("  %v_plus# = add i64 %v, #")}
{of_positions("  %v# = call i64 @llvm.umin.i64(i64 %v_plus#, i64 %last)")}
  br i1 %any, label %row, label %sums
row:
  %e = phi i64 [ %first, %block ], [ %next_e, %row_done ]
{phis("of_row", ("zero", "block"), ("tapped", "row_done"))}
  %two = mul i64 %e, 2
  %entry_at = getelementptr i64, ptr %entries, i64 %two
  %x_way = call i64 @word(ptr %entry_at, i64 0)
  %x_row = getelementptr i8, ptr %x, i64 %x_way
  %w_row_way = call i64 @word(ptr %entry_at, i64 1)
  %w_row = getelementptr i8, ptr %w_group, i64 %w_row_way
  br label %tap
tap:
  %j = phi i64 [ 0, %row ], [ %next_j, %tap_done ]
{phis("of_tap", ("of_row", "row"), ("tapped", "tap_done"))}
  %columns_way = mul i64 %j, %width
  %columns_j = getelementptr i64, ptr %columns, i64 %columns_way
{
        of_positions('''  %way# = call i64 @word(ptr %columns_j, i64 %v#)
  %outside# = icmp slt i64 %way#, 0
  %inside# = getelementptr i8, ptr %x_row, i64 %way#
  %x# = select i1 %outside#, ptr %zeros, ptr %inside#''')
    }
  %w_tap_way = mul i64 %j, %w_column_bytes
  %w_tap = getelementptr i8, ptr %w_row, i64 %w_tap_way
{
        of_features('''  %w_way# = mul i64 %w_feature_bytes, #
  %w# = getelementptr i8, ptr %w_tap, i64 %w_way#''')
    }
  br i1 %any_full, label %channel, label %rest
channel:
  %c = phi i64 [ 0, %tap ], [ %next_c, %channel ]
{phis("sum", ("of_tap", "tap"), ("more", "channel"))}
{products("sum", "more", full_vector)}
{again("c", "full", "channel", "rest", lanes)}
rest:
{phis("before", ("of_tap", "tap"), ("more", "channel"))}
  br i1 %any_left, label %some, label %tap_done
some:
{products("before", "little", part)}
  br label %tap_done
tap_done:
{phis("tapped", ("before", "rest"), ("little", "some"))}
{again("j", "column_taps", "tap", "row_done")}
row_done:
{again("e", "behind", "row", "sums")}
sums:
{phis("result", ("zero", "block"), ("tapped", "row_done"))}
{_stored(sums)}
{again("v", "width", "block", "end", sums.positions)}
end:
  ret void
}}
"""


def _stored(sums: Lanes) -> str:
    """Return lines that store the horizontal sums of %result0, ..; positions behind the end repeat the last one."""
    lines: list[str] = []
    for p in range(sums.positions):
        lines += [
            f"  %to_way{p} = mul i64 %v{p}, %out_column_bytes",
            f"  %to{p} = getelementptr i8, ptr %out_line, i64 %to_way{p}",
        ]
    for start in range(0, sums.count, sums.lanes):
        numbers = range(start, min(start + sums.lanes, sums.count))
        summed = _horizontal_sums(sums, [f"result{i}" for i in numbers], lines)
        for element, i in enumerate(numbers):
            p, f = divmod(i, sums.features)
            lines += [
                f"  %value{i} = extractelement {sums.vector} %{summed}, i32 {element}",
                f"  %feature_way{i} = mul i64 %out_feature_bytes, {f}",
                f"  %instance_at{i} = getelementptr i8, ptr %to{p}, i64 %feature_way{i}",
                f"  store {sums.scalar} %value{i}, ptr %instance_at{i}, align {sums.kind.byte_size}",
            ]
    return "\n".join(lines)


def _horizontal_sums(sums: Lanes, vectors: Sequence[str], lines: list[str]) -> str:
    """Return a vector whose lane i is the horizontal sum of ``vectors[i]``; append its code to ``lines``.

    Pairs of vectors are interleaved and added, first single lanes, then pairs of lanes, and so on.
    """
    lanes, vector = sums.lanes, sums.vector
    width, level = 1, list(vectors)
    while width < lanes:
        level += level[-1:] * (len(level) % 2)
        joined = []
        for one, other in zip(level[::2], level[1::2], strict=True):
            name = f"{one}_{width}"
            masks = []
            for half in (0, width):
                chosen = [
                    source * lanes + begin + half + element
                    for begin in range(0, lanes, 2 * width)
                    for source in (0, 1)
                    for element in range(width)
                ]
                masks.append(", ".join(f"i32 {number}" for number in chosen))
            for side, mask in zip(("low", "high"), masks, strict=True):
                lines.append(
                    f"  %{name}_{side} = shufflevector {vector} %{one}, {vector} %{other}, <{lanes} x i32> <{mask}>"
                )
            lines.append(f"  %{name} = fadd {vector} %{name}_low, %{name}_high")
            joined.append(name)
        level, width = joined, 2 * width
    return level[0]
