"""Edit of a scheduled computation that computes a region in consecutive pieces and can be undone.

Pieces are unrolled: they read slices, which are views, and write into results by dynamic-update-slice, in place.
Therefore all other edits of a schedule apply to pieces as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.orders import post_order
from runtime.schedule.split_region import Region, predecessors
from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction
from spmd.passes.pieces import operand_part, piece_of
from spmd.shape import PrimitiveType


class SplitEdit:
    """Edit that computes ``region`` in pieces, at the better of two positions: its begin, or before its first reader.

    The region's replaced instructions stay in the computation, unread and not in ``order``, until ``keep`` removes
    them; ``undo`` reverts the edit. It updates the memory model of the live ranges. order: the new order. made: all new
    instructions.
    """

    def __init__(self, live_ranges: LiveRanges, region: Region) -> None:
        """Build the pieces of ``region`` in the computation of ``live_ranges``."""
        self._live_ranges, self._region = live_ranges, region
        self._model = live_ranges.model
        self._computation: HloComputation = live_ranges.model.computation
        self._root = self._computation.root
        self._builder = Builder(self._computation)
        self.made: list[HloInstruction] = []
        self._replaced: list[tuple[HloInstruction, int, HloInstruction]] = []
        self._starts: dict[int, HloInstruction] = {}
        self._build()
        #: Members that pieces replace. The other members stay for early readers, and are also recomputed in pieces.
        self._gone = dict.fromkeys(region.members[region.again :])
        self._model.rebuild(without=self._gone)
        self.order = min(self._orders(), key=self._model.peak)
        #: Weight of each position. All pieces of a member together have the weight of the member.
        self.weights = self._weigh()

    def _weigh(self) -> list[float]:
        made = dict.fromkeys(self.made)
        return [1 / self._region.pieces if i in made else 1.0 for i in self.order]

    def keep(self) -> None:
        """Make the edit permanent: remove the replaced members, and set the new order."""
        for member in reversed(self._gone):
            self._computation.remove(member)
        self._computation.set_order(self.order)

    def undo(self) -> None:
        """Revert the edit of the computation and of the memory model."""
        for reader, number, operand in reversed(self._replaced):
            reader.replace_operand(number, operand)
        self._computation.root = self._root
        for one in reversed(self.made):
            self._computation.remove(one)
        self._computation.set_order(self._live_ranges.order)
        self._model.rebuild()

    # ---- building
    def _build(self) -> None:
        """Create all pieces, and let the readers of the region's results read the assembled ones."""
        before = len(self._computation)
        assembled: dict[HloInstruction, HloInstruction] = {}
        for number in range(self._region.pieces):
            self._build_piece(number, assembled)
        self.made = list(self._computation.newest(len(self._computation) - before))
        for result, new in assembled.items():
            self._read_instead(result, new)

    def _build_piece(self, number: int, assembled: dict[HloInstruction, HloInstruction]) -> None:
        """Create piece ``number`` of all members, and add it to the ``assembled`` results."""
        region = self._region
        made: dict[HloInstruction, HloInstruction] = {}
        parts: dict[tuple[HloInstruction, int], HloInstruction] = {}
        for member in region.members:
            along = region.along[member]
            operands = []
            for operand, dim in zip(member.operands, along.operands, strict=True):
                if operand in region.along:
                    operands.append(made[operand])
                elif dim is None:
                    operands.append(operand)
                else:
                    if (operand, dim) not in parts:
                        parts[operand, dim] = operand_part(
                            operand, dim, number, region.pieces, self._builder
                        )
                    operands.append(parts[operand, dim])
            made[member] = self._piece(member, operands)
            if member in region.results:
                assembled[member] = self._joined(
                    member, made[member], number, assembled.get(member)
                )

    def _piece(self, member: HloInstruction, operands: Sequence[HloInstruction]) -> HloInstruction:
        """Return a new instruction that computes one piece of ``member`` from pieces of its operands."""
        pieces = self._region.pieces
        piece = piece_of(member, self._region.along[member], operands, pieces)
        self._computation.add(piece)
        self._model.facts.like(piece, member, pieces)
        return piece

    def _joined(
        self,
        member: HloInstruction,
        piece: HloInstruction,
        number: int,
        partial: HloInstruction | None,
    ) -> HloInstruction:
        """Return the result of ``member`` with piece ``number`` added to ``partial``, the pieces before it.

        Pieces are written to their part of the result, which is zero at first, or combined if each covers the result.
        """
        along, build = self._region.along[member], self._builder
        build.annotations = member.annotations
        if along.result is None:
            if partial is None:
                return piece
            assert along.combine is not None
            return self._computation.create(along.combine, member.shape, (partial, piece))
        dim, size = along.result, piece.dims[along.result]
        if partial is None:
            none = [0] * len(piece.dims)
            rest = [member.dims[dim] - size if d == dim else 0 for d in range(len(piece.dims))]
            zero = build.scalar(member.array_shape.element_type, 0)
            return self._shaped(build.pad(piece, zero, none, rest), member)
        starts = [self._start(number * size if d == dim else 0) for d in range(len(piece.dims))]
        return self._shaped(build.dynamic_update_slice(partial, piece, starts), member)

    def _shaped(self, one: HloInstruction, member: HloInstruction) -> HloInstruction:
        """Give ``one`` the shape and layout of ``member``, and return it."""
        one.shape = member.shape
        return one

    def _start(self, value: int) -> HloInstruction:
        """Return the constant ``value`` as s32, one instruction for each value."""
        if value not in self._starts:
            self._starts[value] = self._builder.scalar(PrimitiveType.S32, value)
        return self._starts[value]

    def _read_instead(self, result: HloInstruction, new: HloInstruction) -> None:
        """Let the users of ``result`` outside of the region use ``new``."""
        for user in result.users:
            if user in self._region.along:
                continue
            for number, operand in enumerate(user.operands):
                if operand is result:
                    user.replace_operand(number, new)
                    self._replaced.append((user, number, result))
        if result is self._root:
            self._computation.root = new

    # ---- order
    def _orders(self) -> Iterator[list[HloInstruction]]:
        """Yield two orders: with the pieces at the first replaced member, and before the first reader of a result."""
        readers = {reader for reader, _, _ in self._replaced}
        first = self._live_ranges.position[self._region.members[self._region.again]]
        positions = (n for n, i in enumerate(self._live_ranges.order) if i in readers)
        for position in (first, min(positions, default=len(self._live_ranges.order))):
            head = [i for i in self._live_ranges.order[:position] if i not in self._gone]
            tail = [i for i in self._live_ranges.order[position:] if i not in self._gone]
            yield post_order((*head, *self.made, *tail), predecessors)
