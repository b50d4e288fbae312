"""Native code of a transpose: tiles of vectors in registers, in squares that suit the cache.

Element [i, j] of the source, which is contiguous in j, goes to [j, i] of the target, which is contiguous in i.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector
from runtime.cpu.kernels.copy.copy import transpose_name
from spmd.lazy_dataclass import dataclass

#: Rows and columns of a square, at least those of a block. A square has some cache lines of each line, and its pages
#: stay in the TLB (Zen 5: 64 take 1.0 to 1.2 times as long up to 1000 x 1000, but 0.4 to 0.8 with lines of 1024 and
#: 2048 elements).
_SQUARE = 32


@dataclass(frozen=True, slots=True)
class Lines:
    """Array of contiguous lines, which begin ``stride`` bytes apart."""

    base: Pointer
    stride: Int

    def at(self, element: IntLike, line: IntLike, width: int) -> Lines:
        """Return the lines that begin at element number ``element``, of ``width`` bytes, of line number ``line``."""
        return Lines(self.base.at(element * width + line * self.stride), self.stride)

    def row(self, number: int) -> Pointer:
        """Return the address of line ``number``."""
        return self.base.at(self.stride * number)


def transpose_ir(width: int) -> str:
    """Return the IR of ``transpose_code``."""
    module = Module()
    add_transpose(module, width)
    return module.text()


def add_transpose(module: Module, width: int, linkage: str = "") -> None:
    """Add ``transpose_name(width)``(s, s_stride, t, t_stride, i_count, j_count), with strides of lines in bytes.

    It moves blocks of two by two tiles, square by square, and the remaining elements singly. A tile is n vectors of n
    elements. A line of a block has 64 bytes, or 32 if ``width`` is 1, in both arrays.
    """
    add_edge(module, width)
    f = FunctionWriter(
        transpose_name(width),
        module=module,
        parameters=("ptr", "i64", "ptr", "i64", "i64", "i64"),
        linkage=linkage,
    )
    s, s_stride, t, t_stride, i_count, j_count = f.parameters
    source, target = Lines(s, s_stride), Lines(t, t_stride)
    n = min(16, 32 // width)
    block = 2 * n
    i_tiled, j_tiled = i_count & -block, j_count & -block
    # The remaining rows i with all columns, then the remaining columns j of the tiled rows.
    edge = f"edge{width}"
    f.call("void", edge, s, width, s_stride, t, t_stride, width, 0, j_count, i_tiled, i_count)
    f.call("void", edge, s, s_stride, width, t, width, t_stride, 0, i_tiled, j_tiled, j_count)
    none: dict[int, Cursor] = {}
    with (
        f.when(i_tiled.differs(0) & j_tiled.differs(0)),
        f.blocks(i_tiled, _SQUARE, none) as (p, rows, _),
        f.blocks(j_tiled, _SQUARE, none) as (q, columns, _),
        f.loop(q + columns, first=q, step=block) as j,
        f.loop(p + rows, first=p, step=block) as i,
    ):
        block_source, block_target = source.at(j, i, width), target.at(i, j, width)
        with f.loop(4) as b:  # a loop: LLVM takes long for a tile's code
            down, across = (b & 1) * n, (b >> 1) * n
            from_b = block_source.at(across, down, width)
            to_b = block_target.at(down, across, width)
            transpose_tile(from_b, to_b, n, width)
    f.finish()


def transpose_tile(source: Lines, target: Lines, n: int, width: int) -> None:
    """Transpose n vectors of n elements by interleaving vector r with vector r + n/2, log2(n) times."""
    kind = f"<{n} x i{8 * width}>"
    rows: list[Vector] = [source.row(r).load(kind, align=1) for r in range(n)]
    for c, column in enumerate(_interleaved(rows, n)):
        target.row(c).store(column, align=1)


def _interleaved(rows: list[Vector], n: int) -> list[Vector]:
    """Interleave vectors of ``n`` elements, r with r + half of them, until each holds one element of each vector."""
    halves = [[half * n // 2 + k // 2 + (k % 2) * n for k in range(n)] for half in (0, 1)]
    count = len(rows)
    for _ in range(1, count.bit_length()):
        pairs = zip(rows, rows[count // 2 :], strict=False)
        rows = [a.shuffled(order, b) for a, b in pairs for order in halves]
    return rows


# ---- remaining elements
def add_edge(module: Module, width: int) -> None:
    """Add ``edge{width}``(s, s_a, s_b, t, t_a, t_b, a_first, a_end, b_first, b_end), which moves elements singly.

    It moves the elements [a, b] with a_first <= a < a_end and b_first <= b < b_end. Strides are in bytes. The inner
    loop is over b, which should be the shorter range.
    """
    f = internal_function(module, f"edge{width}", "ptr", "i64", "i64", "ptr", *["i64"] * 6)
    s, s_a, s_b, t, t_a, t_b, a_first, a_end, b_first, b_end = f.parameters
    with f.when(a_first.ult(a_end) & b_first.ult(b_end)), f.loop(a_end, first=a_first) as a:
        s_row, t_row = s.at(a * s_a), t.at(a * t_a)
        with f.loop(b_end, first=b_first) as b:
            element = s_row.at(b * s_b).load(f"i{8 * width}", align=1)
            t_row.at(b * t_b).store(element, align=1)
    f.finish()
