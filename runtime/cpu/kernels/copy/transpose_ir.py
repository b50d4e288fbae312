"""Native code of a transpose: what elements of arrays that lie in the near caches, and of larger ones, go through.

[i, j], without gaps in j in the source, goes to [j, i], without gaps in i in the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Int, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.cache_lines_ir import LINE_BYTES, before_line

#: Elements each way of the squares of a near transpose: runs of some lines, on pages that stay in the TLB.
_SQUARE = 32
#: A far transpose goes along as many rows of the source at once as make a line of the target: streams, fetched ahead.
#: Where a stride is a multiple of so many bytes, what is fetched falls into a few sets of the nearest cache, and
#: is pushed out before it is used. There, it goes along more rows, for lines of the target that lie side by side.
_CROWDING_BYTES = 2048
_CROWDED_LINES = 4


@dataclass(frozen=True, slots=True)
class Lines:
    """Array of lines, each without gaps: ``stride`` bytes lie from one to the next."""

    base: Pointer
    stride: Int

    def at(self, element: IntLike, line: IntLike, width: int) -> Lines:
        """Return the lines from element ``element``, of ``width`` bytes, of line ``line`` on."""
        return Lines(self.base.at(element * width + line * self.stride), self.stride)

    def row(self, number: int) -> Pointer:
        return self.base.at(self.stride * number)


@dataclass(frozen=True, slots=True)
class Area:
    """Indices i_first <= i < i_end, j_first <= j < j_end."""

    i_first: IntLike
    i_end: IntLike
    j_first: IntLike
    j_end: IntLike


def transpose_name(width: int) -> str:
    return f"transpose{width}"


@cache
def transpose_code(width: int) -> NativeLibrary:
    """``transpose_name(width)``, for other code to call: see add_transpose."""
    module = Module()
    add_transpose(module, width)
    return host_jit().compile(module.text(), (transpose_name(width),), passes=Passes.TIDY)


def add_transpose(module: Module, width: int, linkage: str = "") -> None:
    """Add ``transpose_name(width)``(s, s_stride, t, t_stride, i_count, j_count), for arrays in the near caches.

    Blocks of two tiles each way, a tile of n vectors of n elements; what is left at two sides goes singly. A block has
    whole lines of the cache on both sides.
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
    by_rows(f, source, target, Area(i_tiled, i_count, 0, j_count), width)
    by_columns(f, source, target, Area(0, i_tiled, j_tiled, j_count), width)
    with f.when(i_tiled.differs(0) & j_tiled.differs(0)), f.repeat(0) as squares:
        (p,) = squares.values
        p_end = (p + _SQUARE).umin(i_tiled)
        with f.repeat(0) as along:
            (q,) = along.values
            q_end = (q + _SQUARE).umin(j_tiled)
            with f.loop(q_end, first=q, step=block) as j, f.loop(p_end, first=p, step=block) as i:
                block_source, block_target = source.at(j, i, width), target.at(i, j, width)
                with f.loop(4) as b:  # a loop: LLVM takes long for a tile's code
                    down, across = (b & 1) * n, (b >> 1) * n
                    from_b = block_source.at(across, down, width)
                    to_b = block_target.at(down, across, width)
                    transpose_tile(from_b, to_b, n, width)
            along.again(q_end, when=q_end.ult(j_tiled))
        squares.again(p_end, when=p_end.ult(i_tiled))
    f.finish()


def transpose_tile(
    source: Lines, target: Lines, n: int, width: int, align: int = 1, *, streamed: bool = False
) -> None:
    """Transpose n vectors of n elements. align: bytes of which a target's line is a multiple.

    Vectors are transposed by interleaving vector r with vector r + n/2, log2(n) times.
    """
    kind = f"<{n} x i{8 * width}>"
    rows: list[Vector] = [source.row(r).load(kind, align=1) for r in range(n)]
    for c, column in enumerate(_interleaved(rows, n)):
        target.row(c).store(column, align=align, nontemporal=streamed)


def _interleaved(rows: list[Vector], n: int) -> list[Vector]:
    """Return vectors of ``n`` elements interleaved, r with r + half of them, until each has one element of each."""
    halves = [[half * n // 2 + k // 2 + (k % 2) * n for k in range(n)] for half in (0, 1)]
    count = len(rows)
    for _ in range(1, count.bit_length()):
        pairs = zip(rows, rows[count // 2 :], strict=False)
        rows = [a.shuffled(order, b) for a, b in pairs for order in halves]
    return rows


def add_tile(module: Module, name: str, n: int, width: int, align: int) -> None:
    """Add ``name``(s, s_stride, t, t_stride), which transposes a tile."""
    f = FunctionWriter(
        name,
        module=module,
        parameters=("ptr", "i64", "ptr", "i64"),
        linkage="internal",
        attributes="noinline",
    )
    s, s_stride, t, t_stride = f.parameters
    transpose_tile(Lines(s, s_stride), Lines(t, t_stride), n, width, align)
    f.finish()


# ---- elements at the sides, singly
def add_edge(module: Module, width: int) -> None:
    """Add ``edge{width}``, which moves elements [a, b] of a_first <= a < a_end, b_first <= b < b_end, b the fewer."""
    f = FunctionWriter(
        f"edge{width}",
        module=module,
        parameters=("ptr", "i64", "i64", "ptr", *["i64"] * 6),
        linkage="internal",
        attributes="noinline",
    )
    s, s_a, s_b, t, t_a, t_b, a_first, a_end, b_first, b_end = f.parameters
    with f.when(a_first.ult(a_end) & b_first.ult(b_end)), f.loop(a_end, first=a_first) as a:
        s_row, t_row = s.at(a * s_a), t.at(a * t_a)
        with f.loop(b_end, first=b_first) as b:
            element = s_row.at(b * s_b).load(f"i{8 * width}", align=1)
            t_row.at(b * t_b).store(element, align=1)
    f.finish()


def by_rows(f: FunctionWriter, source: Lines, target: Lines, area: Area, width: int) -> None:
    """Move an area of few i."""
    one = f.constant(width)
    moved = (source.base, one, source.stride, target.base, target.stride, one)
    bounds = map(f.constant, (area.j_first, area.j_end, area.i_first, area.i_end))
    f.call("void", f"edge{width}", *moved, *bounds)


def by_columns(f: FunctionWriter, source: Lines, target: Lines, area: Area, width: int) -> None:
    """Move an area of few j."""
    one = f.constant(width)
    moved = (source.base, source.stride, one, target.base, one, target.stride)
    bounds = map(f.constant, (area.i_first, area.i_end, area.j_first, area.j_end))
    f.call("void", f"edge{width}", *moved, *bounds)


# ---- arrays that the near caches do not hold
def add_far_transpose(module: Module, width: int, *, streamed: bool) -> None:
    """Add ``far_transpose``(s, s_stride, t, t_stride, i_count, j_count).

    Tiles fill whole lines of the target, each line touched once on either side: 16 vectors of 16 words. Lines of narrow
    elements become words of as many neighbouring rows first, in a buffer, which is several tiles. Those of 8 bytes have
    tiles of 8 vectors. Elements at the sides go singly: in front of the first whole line of both, and behind the last.

    streamed: lines go past the caches. The target's strides are multiples of a line then.
    """
    add_edge(module, width)
    f = FunctionWriter(
        "far_transpose",
        module=module,
        parameters=("ptr", "i64", "ptr", "i64", "i64", "i64"),
        linkage="internal",
    )
    s, s_stride, t, t_stride, i_count, j_count = f.parameters
    source, target = Lines(s, s_stride), Lines(t, t_stride)
    edge = LINE_BYTES // width
    block = _Block(f, width, streamed)
    i_before, j_before = before_line(t, i_count, width), before_line(s, j_count, width)
    i_whole, j_whole = (i_count - i_before) & -edge, (j_count - j_before) & -edge
    i_tiled, j_tiled = i_before + i_whole, j_before + j_whole
    by_rows(f, source, target, Area(0, i_before, 0, j_count), width)
    by_rows(f, source, target, Area(i_tiled, i_count, 0, j_count), width)
    by_columns(f, source, target, Area(i_before, i_tiled, j_tiled, j_count), width)
    by_columns(f, source, target, Area(i_before, i_tiled, 0, j_before), width)
    over = (s_stride & (_CROWDING_BYTES - 1)).umin(t_stride & (_CROWDING_BYTES - 1))
    strip = over.equals(0).select(f.constant(_CROWDED_LINES * edge), edge)
    with f.when(i_whole.differs(0) & j_whole.differs(0)), f.repeat(i_before) as strips:
        (p,) = strips.values
        p_end = (p + strip).umin(i_tiled)
        along_rows = f.loop(j_tiled, first=j_before, step=edge)  # a line of each row of the strip
        with along_rows as j, f.loop(p_end, first=p, step=edge) as i:
            block.write(source.at(j, i, width), target.at(i, j, width))
        strips.again(p_end, when=p_end.ult(i_tiled))
    f.finish()


class _Block:
    """Writes the transpose of a line of as many rows as make a line."""

    def __init__(self, f: FunctionWriter, width: int, streamed: bool) -> None:
        self.f, self.width, self.streamed = f, width, streamed
        self.word = max(width, 4)
        self.n, self.parts = LINE_BYTES // self.word, self.word // width
        self.align = LINE_BYTES if streamed else 1
        self.buffer = f.array(self.parts * self.n * LINE_BYTES, "i8") if self.parts > 1 else None

    def write(self, source: Lines, target: Lines) -> None:
        if self.buffer is None:
            self._tile(source, target)
            return
        f, n, tile = self.f, self.n, self.n * LINE_BYTES
        self._words(source, self.buffer)
        with f.loop(self.parts) as h:
            part = Lines(self.buffer.at(h * tile), f.constant(LINE_BYTES))
            self._tile(part, target.at(0, h * n, self.width))

    def _tile(self, source: Lines, target: Lines) -> None:
        transpose_tile(source, target, self.n, self.word, self.align, streamed=self.streamed)

    def _words(self, source: Lines, buffer: Pointer) -> None:
        """Element c of ``parts`` rows makes word c of a line of the buffer, whose tiles are words of neighbouring c."""
        parts, n = self.parts, self.n
        lanes = LINE_BYTES // self.width
        kind = f"<{lanes} x i{8 * self.width}>"
        with self.f.loop(n) as k:
            row = k * parts
            line = buffer.at(k * LINE_BYTES)
            rows = [
                source.at(0, row + r, self.width).base.load(kind, align=1) for r in range(parts)
            ]
            for part, words in enumerate(_interleaved(rows, lanes)):
                line.at(part * n * LINE_BYTES).store(words, align=LINE_BYTES)
