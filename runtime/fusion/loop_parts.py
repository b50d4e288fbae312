"""Parts of a loop's index space, which is cut where the loop begins to read another concatenation operand or padding.

All parts are followed at once, from the results to the inputs. Each instruction is visited once per read, not once per
part, so the inputs of a stack of scalars are traversed once, however many scalars there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from runtime.fusion.element_graph import (
    MAX_LEAVES,
    MAX_STEPS,
    SOURCES,
    Key,
    Starts,
    Wanted,
    counting_line,
    operand_reads,
    read_key,
    shown_operand,
)
from runtime.fusion.piecewise import CutError, is_piecewise, piece_read
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import AccessMap, ViewOp, ViewPath, through
from runtime.program.blocks import Box, full_box
from runtime.program.strides import Range
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import SliceAttrs

#: Largest number of pieces of a loop. Code is generated for each piece.
MAX_PIECES = 16


@dataclass(eq=False, slots=True)
class LoopPart:
    """Part of a loop's index space of sizes ``dims``: the indices in ``box`` that also lie in all ``ranges``.

    ``halves`` are the parts into which it is cut, if it is. ``values`` is the number of reads found in it. ``inside``
    is the path from the entire index space to this part, and ``own_ranges`` are the ranges relative to the box's begin.
    """

    dims: tuple[int, ...]
    box: Box
    ranges: tuple[Range, ...] = ()
    halves: tuple[LoopPart, ...] = ()
    values: int = 0
    begins: tuple[int, ...] = field(init=False)
    ends: tuple[int, ...] = field(init=False)
    sizes: tuple[int, ...] = field(init=False)
    inside: ViewPath = field(init=False, default=())
    own_ranges: tuple[Range, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.begins = tuple([begin for begin, _ in self.box])
        self.ends = tuple([end for _, end in self.box])
        self.sizes = tuple([end - begin for begin, end in self.box])
        if self.sizes != self.dims:
            attrs = SliceAttrs(self.begins, self.ends, (1,) * len(self.dims))
            self.inside = (ViewOp(Opcode.SLICE, self.sizes, attrs),)
        self.own_ranges = tuple([_moved(each, self.begins, -1) for each in self.ranges])

    @staticmethod
    def full(dims: tuple[int, ...]) -> LoopPart:
        """Return the entire index space of sizes ``dims``."""
        return LoopPart(dims, full_box(dims))

    def pieces(self) -> Iterator[LoopPart]:
        """Yield the uncut parts of this part that may contain indices."""
        if self.halves:
            for half in self.halves:
                yield from half.pieces()
        elif all(each.first < each.end for each in self.ranges):
            yield self

    def cut(self, cut: CutError) -> None:
        """Cut this part in two at ``cut``, whose index is relative to the box's begin."""
        if cut.within is not None:
            others = tuple(each for each in self.ranges if not each.is_of(cut.within))
            self.halves = tuple(
                replace(self, ranges=(*others, _moved(narrower, self.begins, 1)))
                for narrower in (
                    replace(cut.within, end=cut.at),
                    replace(cut.within, first=cut.at),
                )
            )
            return
        d = cut.dimension
        assert d is not None, "a cut across no dimension is one of a range"
        begin, end = self.box[d]
        at = begin + cut.at
        self.halves = tuple(
            replace(self, box=(*self.box[:d], side, *self.box[d + 1 :]))
            for side in ((begin, at), (at, end))
        )


def _moved(each: Range, begins: Sequence[int], sign: int) -> Range:
    """Shift ``each`` by ``sign`` times the begin of a box along the range's dimension."""
    way = 0 if each.dimension is None else sign * begins[each.dimension]
    return replace(each, first=each.first + way, end=each.end + way)


@dataclass(frozen=True, slots=True)
class PartsRead:
    """Read of a value by some parts of a loop, through ``path`` from the entire index space."""

    path: ViewPath
    parts: dict[LoopPart, None]

    def pieces(self) -> Iterator[LoopPart]:
        """Yield the uncut parts that read the value."""
        for part in self.parts:
            yield from part.pieces()


@dataclass
class Cutting:
    """Search for the cuts of a loop over the index space of ``full_part``."""

    full_part: LoopPart
    inputs: Mapping[HloInstruction, int]
    starts: Starts
    _reads: dict[HloInstruction, dict[Key, PartsRead]] = field(default_factory=dict)

    def follow(self, wanted: Sequence[Wanted], order: Sequence[HloInstruction]) -> None:
        """Follow ``wanted`` to the inputs and cut the loop where necessary. ``order`` is the post order of ``wanted``.

        Raises NoEmitterError if no cuts separate the operands that are read, or if there would be more than
        ``MAX_PIECES``.
        """
        for instruction, path in wanted:
            self._add(instruction, path, {self.full_part: None})
        for instruction in reversed(order):
            if instruction not in self.inputs and instruction.opcode not in SOURCES:
                for key, read in list(self._reads.get(instruction, {}).items()):
                    self._follow(instruction, key, read)

    def reads_of(self, instruction: HloInstruction) -> list[PartsRead]:
        """Return the reads of ``instruction`` that ``follow`` has found."""
        return list(self._reads.get(instruction, {}).values())

    @property
    def is_small(self) -> bool:
        """Return whether strides express all reads, and all parts together read no more than one part may."""
        leaves = [
            _is_strided(x, key, read.path, is_input=x in self.inputs)
            for x, reads in self._reads.items()
            if x in self.inputs or x.opcode is Opcode.IOTA
            for key, read in reads.items()
        ]
        return (
            all(leaves)
            and len(leaves) <= MAX_LEAVES
            and sum(map(len, self._reads.values())) <= MAX_STEPS
        )

    def _follow(self, instruction: HloInstruction, key: Key, read: PartsRead) -> None:
        """Add the operand reads that ``read`` of ``instruction`` needs."""
        if is_piecewise(instruction):
            for part in list(read.parts):
                self._follow_pieces(instruction, read.path, part)
            return
        shown = shown_operand(instruction, read.path, self.starts)
        if shown is not None:
            self._add(*shown, read.parts)
            return
        for operand, path, same in operand_reads(instruction, read.path, key):
            self._add_at(operand, path, same, read.parts)

    def _follow_pieces(self, instruction: HloInstruction, path: ViewPath, part: LoopPart) -> None:
        """Add the operand reads of a concatenation or pad, after cutting ``part`` where they differ."""
        for piece in list(part.pieces()):
            try:
                operand, (op, *_) = piece_read(
                    instruction, (*path, *piece.inside), piece.own_ranges
                )
            except CutError as cut:
                piece.cut(cut)
                if sum(1 for _ in self.full_part.pieces()) > MAX_PIECES:
                    raise NoEmitterError(f"a loop is cut into at most {MAX_PIECES} pieces") from cut
                self._follow_pieces(instruction, path, piece)
            else:
                self._add(operand, (op, *path), {piece: None})

    def _add(
        self, instruction: HloInstruction, path: ViewPath, parts: dict[LoopPart, None]
    ) -> None:
        """Add a read of ``instruction`` by ``parts`` through ``path``."""
        self._add_at(instruction, path, read_key(instruction, path, self.inputs), parts)

    def _add_at(
        self, instruction: HloInstruction, path: ViewPath, key: Key, parts: dict[LoopPart, None]
    ) -> None:
        """Add a read by ``parts`` through ``path``, whose key is ``key``.

        If there are several paths with one key, the first is followed.
        """
        reads = self._reads.setdefault(instruction, {})
        read = reads.get(key)
        if read is None:
            read = reads[key] = PartsRead(path, {})
        for part in parts:
            if part not in read.parts:
                read.parts[part] = None
                part.values += 1
                if part.values > 2 * MAX_STEPS:
                    raise NoEmitterError(
                        f"a kernel computes at most {MAX_STEPS} values per element"
                    )


def _is_strided(x: HloInstruction, key: Key, path: ViewPath, *, is_input: bool) -> bool:
    """Return whether strides express the read of ``x``, an input or an iota, through ``path``, whose key is ``key``."""
    if is_input:
        return isinstance(key, AccessMap)
    return through(path, counting_line(x)) is not None
