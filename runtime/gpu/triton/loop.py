"""The loop of a Triton kernel over blocks of its loop's axis. Blocks that a mask hides entirely are not computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from runtime.gpu.triton.axes import AxisKind, Blocks, padded
from runtime.gpu.triton.elements import cast
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.structure import AttentionStructure
from runtime.gpu.triton.sums import MAXIMUM
from runtime.gpu.triton.tiles import Tiles
from spmd.analysis.attention_mask import AttentionWindow, Masks, zero_in_all
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction
from spmd.shape import PrimitiveType

#: exp(-UNDERFLOW) is 0 in f32.
_UNDERFLOW = 104.0
#: Rows whose statistics are read at once.
_ROWS_AT_ONCE = 1024


class LoopWriter:
    """Writer of the lines of the loop around ``body``.

    new_tiles: makes a writer of tiles of the kernel's operands, in blocks of given sizes, which adds to given lines.
    """

    def __init__(
        self,
        structure: AttentionStructure,
        blocks: Blocks,
        body: Sequence[str],
        new_tiles: Callable[[Blocks, Lines], Tiles],
    ) -> None:
        self._structure, self._blocks, self._body = structure, blocks, body
        self._new_tiles = new_tiles
        self._size = structure.loop.size
        masks, softmax = Masks(structure.axes), structure.softmax
        self._hidden = None if softmax is None else masks.hidden_scores(softmax.scores)
        self._zero = None
        if all(sink.kind is ReductionKind.SUM for sink in structure.sinks):
            self._zero = zero_in_all([masks.zero_outside(sink.scores) for sink in structure.sinks])

    @property
    def is_longer_for_later_rows(self) -> bool:
        """True if programs of later rows compute more blocks, as with a causal mask."""
        found = self._zero if self._structure.softmax is None else self._hidden
        if found is None or self._structure.mode == "columns":
            return False
        return found.window.high is not None and found.window.low is None

    def lines(self) -> list[str]:
        """Return the lines of the loop, and of what it needs before."""
        hidden, zero = self._hidden, self._zero
        if self._structure.softmax is not None and hidden is not None:
            if hidden.value == -math.inf:
                return [*self._bounds(hidden.window), *self._blocks_from("begin", "end")]
            return self._in_parts(hidden.window, hidden.value)
        if self._structure.softmax is None and zero is not None:
            conditions = self._conditions(zero.conditions)
            return [*self._bounds(zero.window), *conditions, *self._blocks_from("begin", "end")]
        return self._blocks_from("0", str(self._size))

    def _blocks_from(self, begin: str, end: str) -> list[str]:
        """Return the loop over the blocks from ``begin`` to ``end``."""
        block = self._blocks.loop
        hint = [f"start = tl.multiple_of(start, {block})"] if begin != "0" else []
        return self._for_steps(f"range({begin}, {end}, {block})", [*hint, *self._body])

    def _for_steps(self, starts: str, body: Sequence[str]) -> list[str]:
        """Return the loop of ``body`` over ``starts``, for all indices of the STEP axes."""
        steps = self._structure.axes_of_kind(AxisKind.STEP)
        heads = [f"for b{axis.number} in range(0, {axis.size}):" for axis in steps]
        lines = [f"for start in {starts}:", *_indented(body)]
        for head in reversed(heads):
            lines = [head, *_indented(lines)]
        return lines

    def _bounds(self, window: AttentionWindow) -> list[str]:
        """Return the lines that assign to ``begin`` and ``end`` the bounds of the blocks that touch ``window``."""
        low, high = window.low, window.high
        if self._structure.mode == "columns":  # the loop's axis is that of rows
            low, high = (None if x is None else -x for x in (window.high, window.low))
        block, begin, end = self._blocks.loop, _number(0), _number(self._size)
        if low is not None:
            begin = f"tl.maximum(first + ({low}), 0) // {block} * {block}"
        if high is not None:
            end = f"tl.minimum(first + ({self._blocks.grid + high}), {self._size})"
        return [f"begin = {begin}", f"end = {end}"]

    # ---- one pass over visible blocks, then over hidden ones if they count
    def _in_parts(self, window: AttentionWindow, value: float) -> list[str]:
        """Return the loop over blocks that touch ``window``, and then over all others if a row needs them.

        Hidden scores are ``value``. Their exponentials are 0 unless the maximum of a row is about as small, for example
        because the mask hides all of its columns.
        """
        block, size = self._blocks.loop, self._size
        seen = f"tl.min(({MAXIMUM} > {_bound(value)}).to(tl.int32), 0)"
        if window.low is None:
            later = ["begin = after", f"end = {size} * hidden"]
        elif window.high is None:
            later = ["begin = hidden * 0", "end = before * hidden"]
        else:
            later = [
                "begin = tl.where(part == 0, 0, after)",
                f"end = tl.where(part == 0, before, {size}) * hidden",
            ]
        return [
            *self._bounds(window),
            "before = begin",
            f"after = tl.maximum(begin, (end + {block - 1}) // {block} * {block})",
            f"hidden = {_number(0)}",
            f"for part in range(0, {2 if None in (window.low, window.high) else 3}):",
            *_indented(self._blocks_from("begin", "end")),
            f"    hidden = tl.where(part == 0, 1 - {seen}, hidden)",
            *_indented(later),
        ]

    # ---- conditions on the statistics of rows
    def _conditions(self, conditions: Sequence[tuple[HloInstruction, float]]) -> list[str]:
        """Return the lines that make ``begin`` and ``end`` those of all blocks if a row violates ``conditions``."""
        if not conditions:
            return []
        lines = Lines("w")
        sizes = Blocks(self._blocks.grid, min(_ROWS_AT_ONCE, padded(self._size)), 1, 1)
        tiles = self._new_tiles(sizes, lines)
        rows = self._structure.axes[-2]
        flags = []
        for values, number in conditions:
            tile = tiles.rows(values, self._structure.axes)
            flags.append(f"({cast(tile.name, tile.kind, PrimitiveType.F32)} > {_bound(number)})")
        text = " & ".join(flags)
        inside = tiles.memory.inside(rows)
        if inside is not None:
            text = f"({text}) | ({inside} == 0)"
        seen = f"tl.min(({text}).to(tl.int32), 0)"
        test = [f"seen = {seen}"]
        if rows.kind is AxisKind.LOOP:
            least = [*lines.of(Level.LOOP), f"seen = tl.minimum(seen, {seen})"]
            starts = f"range(0, {self._size}, {sizes.loop})"
            test = [f"seen = {_number(1)}", *self._for_steps(starts, least)]
        return [
            *lines.of(Level.PROLOGUE),
            *test,
            "begin = begin * seen",
            f"end = tl.where(seen == 1, end, {self._size})",
        ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _number(value: int) -> str:
    return f"tl.full([], {value}, tl.int32)"


def _bound(value: float) -> str:
    """Return the number that y must exceed so that exp(value - y) is 0."""
    return 'float("-inf")' if value == -math.inf else repr(value + _UNDERFLOW)
