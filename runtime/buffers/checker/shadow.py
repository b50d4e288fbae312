"""Shadow memory of the buffer checker: it holds the symbols of the value in each slice that has been written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import field

from collectives.communicator.group import Group
from runtime.buffers.checker.symbols import Symbol
from runtime.buffers.types import BufferAllocation, BufferSlice
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Part:
    """Symbol of a value that each device holds in its own part of a slice with ``parts``."""

    parts: tuple[Group, ...]
    symbol: Symbol


def _as_part(slice_: BufferSlice, symbol: Symbol) -> _Part | Symbol:
    """Return ``symbol`` as it is stored for ``slice_``."""
    return _Part(slice_.parts, symbol) if slice_.parts else symbol


@dataclass
class _Cells:
    """Values in one allocation, by offset. They do not overlap."""

    offsets: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    symbols: list[frozenset[_Part | Symbol]] = field(default_factory=list)

    def clear(self, offset: int, end: int) -> int:
        """Remove the values with a byte in [``offset``, ``end``). Returns the index for a new value there."""
        first = bisect_left(self.offsets, offset)
        if first and self.ends[first - 1] > offset:
            first -= 1
        last = first
        while last < len(self.offsets) and self.offsets[last] < end:
            last += 1
        del self.offsets[first:last], self.ends[first:last], self.symbols[first:last]
        return first


@dataclass
class ShadowMemory:
    """Symbols of the values in all allocations of a device."""

    allocations: tuple[BufferAllocation, ...]
    cells: list[_Cells] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = [_Cells() for _ in self.allocations]

    def write(self, slice_: BufferSlice, symbols: frozenset[Symbol]) -> None:
        """Record a write of a value with ``symbols``, which destroys all values that overlap ``slice_``.

        A write of a device's part counts as a write of all parts, because its offset differs from device to device.
        """
        cells = self.cells[slice_.allocation]
        at = cells.clear(slice_.offset, slice_.offset + slice_.span)
        if slice_.size:
            cells.offsets.insert(at, slice_.offset)
            cells.ends.insert(at, slice_.offset + slice_.span)
            cells.symbols.insert(at, frozenset(_as_part(slice_, one) for one in symbols))

    def symbols_in(self, slice_: BufferSlice) -> frozenset[Symbol]:
        """Return the symbols of the value in exactly this slice; no symbols if there is no such value."""
        cells = self.cells[slice_.allocation]
        at = bisect_left(cells.offsets, slice_.offset)
        if at == len(cells.offsets) or cells.offsets[at] != slice_.offset:
            return frozenset()
        if cells.ends[at] != slice_.offset + slice_.span:
            return frozenset()
        return frozenset(
            one.symbol if isinstance(one, _Part) else one
            for one in cells.symbols[at]
            if slice_.parts == (one.parts if isinstance(one, _Part) else ())
        )

    def holds(self, slice_: BufferSlice, symbols: Iterable[Symbol]) -> bool:
        """Return whether the value in this slice has any of ``symbols``."""
        return not slice_.size or not self.symbols_in(slice_).isdisjoint(symbols)

    def add(self, slice_: BufferSlice, symbol: Symbol) -> None:
        """Add ``symbol`` to the value in this slice."""
        if slice_.size:
            self.write(slice_, self.symbols_in(slice_) | {symbol})

    def copy(self) -> ShadowMemory:
        """Return a copy that later writes to this memory do not change."""
        result = ShadowMemory(self.allocations)
        result.cells = [_Cells(c.offsets[:], c.ends[:], c.symbols[:]) for c in self.cells]
        return result

    def keep_common(self, other: ShadowMemory) -> None:
        """Remove the symbols that ``other`` does not have in the same slice, and the values without symbols."""
        for mine, theirs in zip(self.cells, other.cells, strict=True):
            there = dict(
                zip(zip(theirs.offsets, theirs.ends, strict=True), theirs.symbols, strict=True)
            )
            remaining = [
                (offset, end, common)
                for offset, end, symbols in zip(mine.offsets, mine.ends, mine.symbols, strict=True)
                if (common := symbols & there.get((offset, end), frozenset()))
            ]
            mine.offsets = [k[0] for k in remaining]
            mine.ends = [k[1] for k in remaining]
            mine.symbols = [k[2] for k in remaining]
