"""LLVM IR of ``@product``: a block of a convolution's sums on the tile unit, at most 32 by 32.

Tables give the offsets of operands' tiles (see tile_pieces_ir). Sums of a block are stored while the next one is
computed (see tile_store_ir).
"""

from __future__ import annotations

from runtime.codegen.ir.record_loads import again
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import F32_TYPES, PARTS
from runtime.cpu.kernels.convolution.ir.tile_store_ir import FINISH, pend, read_pending
from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL, TILE_BYTES


def _multiply(rows: int, columns: int, *, transposed: bool) -> str:
    """Return ``@multiply{rows}{columns}``, which computes that many tiles of sums of ``%steps`` products in ``%total``.

    Operands' tiles have strides ``row``, ``tile`` and ``part`` in bytes; a table has the offset of each step. With less
    than four tiles, the unit is kept busy by several registers for each tile, used in turn.
    """
    lines = [
        f"define internal void @multiply{rows}{columns}(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,",
        "    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps,",
        "    ptr %total, ptr %pending) noinline {",
        "entry:",
        read_pending("rows"),
        "  %steps_less = sub i64 %steps, 1",
        "  %rows_more = add i64 %rows, %steps_less",
        "  %share = udiv i64 %rows_more, %steps",
        *(f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(4)),
        "  br label %loop",
        "loop:",
        "  %s = phi i64 [ 0, %entry ], [ %next_s, %stepped ]",
        *_operand_addresses("a", rows),
        *_operand_addresses("b", columns),
        *_products(rows, columns),
        f"""  %r = mul i64 %s, %share
  %left = sub i64 %rows, %r
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %finish, label %stepped
finish:
  %count = call i64 @llvm.umin.i64(i64 %left, i64 %share)
  call void @finish_rows(ptr %total, ptr %pending, i64 %r, i64 %count)
  br label %stepped
stepped:
{again("s", "steps", "loop", "end")}
end:""",
    ]
    for tile in range(4):
        lines += [
            f"  %t{tile} = getelementptr i8, ptr %total, i64 {_sums_offset(tile, transposed=transposed)}",
            f"  call void @llvm.x86.tilestored64(i8 {tile}, ptr %t{tile}, i64 64)",
        ]
    own = [2 * r + c for r in range(rows) for c in range(columns)]
    turns = [f"  call void @turn(ptr %t{tile})" for tile in own] if transposed else []
    return "\n".join([*lines, *_added(rows, columns), *turns, "  ret void", "}\n"])


def _sums_offset(tile: int, *, transposed: bool) -> int:
    """Return the byte offset of a register's sums in %total."""
    row, column = divmod(tile, 2)
    return (2 * column + row if transposed else tile) * TILE_BYTES


def _registers(rows: int, columns: int, r: int, c: int) -> list[int]:
    """Return the registers of a tile's sums: tile (r, c) is register 2 r + c, and registers without a tile help."""
    return [2 * i + j for i in range(r, 2, rows) for j in range(c, 2, columns)]


def _operand_addresses(side: str, count: int) -> list[str]:
    """Return lines that compute the addresses of a step's tiles of each part."""
    lines = [
        f"  %{side}_entry = getelementptr i64, ptr %{side}_steps, i64 %s",
        f"  %{side}_offset = load i64, ptr %{side}_entry",
        f"  %{side}00 = getelementptr i8, ptr %{side}, i64 %{side}_offset",
    ]
    for part in range(PARTS):
        if part:
            before = f"%{side}{part - 1}0"
            lines.append(f"  %{side}{part}0 = getelementptr i8, ptr {before}, i64 %{side}_part")
        if count == 2:
            lines.append(
                f"  %{side}{part}1 = getelementptr i8, ptr %{side}{part}0, i64 %{side}_tile"
            )
    return lines


def _products(rows: int, columns: int) -> list[str]:
    """Return a step. An operand of one tile has two registers for its parts, and each part is loaded once."""
    order = F32_TYPES.products
    if columns == 1:
        order = tuple(sorted(order, key=lambda pair: (pair[0], -pair[1])))
    elif rows == 1:
        order = tuple(sorted(order, key=lambda pair: (pair[1], -pair[0])))
    left, right = _LoadedParts("a", 4, rows), _LoadedParts("b", 6, columns)
    lines = []
    for number, (a_part, b_part) in enumerate(order):
        lines += [*left.loaded(a_part), *right.loaded(b_part)]
        for r in range(rows):
            for c in range(columns):
                turns = _registers(rows, columns, r, c)
                total = turns[number % len(turns)]
                operands = f"i8 {left.register(a_part, r)}, i8 {right.register(b_part, c)}"
                lines.append(
                    f"  call void @llvm.x86.{F32_TYPES.instruction}(i8 {total}, {operands})"
                )
    return lines


class _LoadedParts:
    """Parts of an operand in its two registers from ``first`` on: both tiles of one part, or one tile of two parts."""

    def __init__(self, side: str, first: int, tiles: int) -> None:
        self._side, self._first, self._tiles = side, first, tiles
        self._parts: list[int] = []
        self._loads = 0

    def loaded(self, part: int) -> list[str]:
        """Return lines that load ``part`` unless it is loaded, in place of the oldest one."""
        room = 2 // self._tiles
        if part in self._parts:
            return []
        if len(self._parts) < room:
            self._parts.append(part)
        else:
            oldest = self._loads % room
            self._parts[oldest] = part
        self._loads += 1
        return [
            f"  call void @llvm.x86.tileloadd64(i8 {self.register(part, i)}, ptr %{self._side}{part}{i}, "
            f"i64 %{self._side}_row)"
            for i in range(self._tiles)
        ]

    def register(self, part: int, tile: int) -> int:
        return self._first + self._parts.index(part) + tile


def _added(rows: int, columns: int) -> list[str]:
    """Return lines that add the sums of other registers to each tile in %total."""
    lines = []
    for r in range(rows):
        for c in range(columns):
            own, *others = _registers(rows, columns, r, c)
            lines += [f"  call void @add_tile(ptr %t{own}, ptr %t{other})" for other in others]
    return lines


_ADD_TILE = f"""
define internal void @add_tile(ptr %to, ptr %from) alwaysinline {{
entry:
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next_r, %loop ]
  %to_r = getelementptr [64 x i8], ptr %to, i64 %r
  %from_r = getelementptr [64 x i8], ptr %from, i64 %r
  %x = load <16 x float>, ptr %to_r, align 64
  %y = load <16 x float>, ptr %from_r, align 64
  %sum = fadd <16 x float> %x, %y
  store <16 x float> %sum, ptr %to_r, align 64
  %next_r = add nuw nsw i64 %r, 1
  %more_r = icmp ult i64 %next_r, {LINES}
  br i1 %more_r, label %loop, label %end
end:
  ret void
}}

"""


def _product(*, transposed: bool) -> str:
    rows, columns = ("columns", "rows") if transposed else ("rows", "columns")
    multiplied = "".join(
        f"""
r{r}c{c}:
  call void @multiply{r}{c}(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,
    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps, ptr %total, ptr %pending)
  br label %done
"""
        for r in (1, 2)
        for c in (1, 2)
    )
    pending = pend(
        out="%out_word",
        offsets="%offsets_word",
        rows=f"%{rows}_here",
        columns=f"%{columns}_here",
        adds="%adds_word",
    )
    return f"""
define internal void @product(ptr %a, i64 %a_row, i64 %a_tile, i64 %a_part, ptr %a_steps,
    ptr %b, i64 %b_row, i64 %b_tile, i64 %b_part, ptr %b_steps, i64 %steps, ptr %total, ptr %pending,
    ptr %out, ptr %offsets, i64 %rows, i64 %columns, i1 %adds) noinline {{
entry:
{read_pending("dense")}
  %rows_here = call i64 @llvm.umin.i64(i64 %rows, i64 {PANEL})
  %columns_here = call i64 @llvm.umin.i64(i64 %columns, i64 {PANEL})
  %two_rows = icmp ugt i64 %rows, {LINES}
  %two_columns = icmp ugt i64 %columns, {LINES}
  %is_dense = icmp ne i64 %dense, 0
  %any = icmp ne i64 %steps, 0
  %is_none = xor i1 %any, true
  %nothing = and i1 %is_none, %adds
  br i1 %nothing, label %end, label %fetching
fetching:
  br i1 %is_dense, label %neighbours, label %choose
neighbours:
  call void @fetch(ptr %out, ptr %offsets, i64 %{rows}_here, i64 %{columns}_here)
  br label %choose
choose:
  br i1 %any, label %some, label %zeros
zeros:
  call void @clear(ptr %pending, ptr %out, ptr %offsets, i64 %{rows}_here, i64 %{columns}_here)
  br label %end
some:
  br i1 %two_rows, label %r2, label %r1
r2:
  br i1 %two_columns, label %r2c2, label %r2c1
r1:
  br i1 %two_columns, label %r1c2, label %r1c1
{multiplied}
done:
  %out_word = ptrtoint ptr %out to i64
  %offsets_word = ptrtoint ptr %offsets to i64
  %adds_word = zext i1 %adds to i64
{pending}
  br label %end
end:
  ret void
}}
"""


def product_ir(*, transposed: bool) -> str:
    """Return ``@product``, and ``@finish``, which must be called after the last one; both go behind TILES.

    transposed: rows of the result are the columns of the products.
    """
    sizes = [(r, c) for r in (1, 2) for c in (1, 2)]
    multiply = "".join(_multiply(r, c, transposed=transposed) for r, c in sizes)
    return "".join((FINISH, _ADD_TILE, multiply, _product(transposed=transposed)))
