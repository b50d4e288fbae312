"""A region around collectives, written in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from collectives.passes.exchange_region import ExchangeRegion, is_summed_wider
from spmd.builder import Builder
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DotAttrs
from spmd.passes.pieces import operand_part, piece_of

#: Frontend attribute of a collective that is a piece, with its number: combiners join none of different numbers, which
#: would have to wait for each other again.
PIECE = "exchange_piece"


@dataclass(frozen=True)
class WrittenPieces:
    """The pieces of a region as instructions.

    results: the values that replace the results of the region.
    pieces: the pieces of each member.
    parts: the parts along a dimension of a value that members read in parts, one for each piece.
    """

    results: Mapping[HloInstruction, HloInstruction]
    pieces: Mapping[HloInstruction, Sequence[HloInstruction]]
    parts: Mapping[tuple[HloInstruction, int], Sequence[HloInstruction]]


@dataclass(frozen=True)
class ExchangePieces:
    """A ``region`` to be written by ``builder`` in so many ``pieces``."""

    region: ExchangeRegion
    pieces: int
    builder: Builder

    def write(self) -> WrittenPieces:
        """Write all pieces of the members before an exchange, then those after it, so that they overlap it."""
        writer = _Writer(self.region, self.pieces, self.builder)
        for members in self.region.stages():
            for number in range(self.pieces):
                for member in members:
                    writer.write(member, number)
        results = {result: writer.joined(result) for result in self.region.results}
        return WrittenPieces(results, writer.made, writer.parts)


@dataclass
class _Writer:
    region: ExchangeRegion
    pieces: int
    b: Builder
    made: dict[HloInstruction, list[HloInstruction]] = field(default_factory=dict)
    parts: dict[tuple[HloInstruction, int], list[HloInstruction]] = field(default_factory=dict)

    def write(self, member: HloInstruction, number: int) -> None:
        self.b.annotations = Annotations(metadata=member.annotations.metadata)
        along = self.region.along[member]
        operands = [
            operand if dim is None else self._part(operand, dim)[number]
            for operand, dim in zip(member.operands, along.operands, strict=True)
        ]
        if along.result is None and is_summed_wider(member):
            kind = member.array_shape.element_type.accumulator
            piece = self.b.dot(operands[0], operands[1], member.attrs_as(DotAttrs), kind)
        else:
            piece = self.b.computation.add(piece_of(member, along, operands, self.pieces))
        piece.annotations = member.annotations.of_parts()
        attrs = piece.attrs
        if isinstance(attrs, CollectiveAttrs):
            marks = (*piece.annotations.frontend_attributes, (PIECE, str(number)))
            piece.annotations = replace(piece.annotations, frontend_attributes=marks)
            if attrs.channel_id is not None:
                piece.attrs = replace(attrs, channel_id=self.b.scope.channel_id())
        self.made.setdefault(member, []).append(piece)

    def _part(self, operand: HloInstruction, dim: int) -> list[HloInstruction]:
        """Return the part of ``operand`` that each piece reads."""
        if operand in self.region.along:
            return self.made[operand]
        if (operand, dim) not in self.parts:
            self.parts[operand, dim] = [
                operand_part(operand, dim, n, self.pieces, self.b) for n in range(self.pieces)
            ]
        return self.parts[operand, dim]

    def joined(self, member: HloInstruction) -> HloInstruction:
        """Return the pieces of ``member``, concatenated or summed."""
        along, made = self.region.along[member], self.made[member]
        self.b.annotations = Annotations(metadata=member.annotations.metadata)
        if along.result is not None:
            return self.b.concatenate(made, along.result)
        assert along.combine is not None
        total = made[0]
        for term in made[1:]:
            total = self.b.binary(along.combine, total, term)
        return self.b.as_type(total, member.array_shape.element_type)
