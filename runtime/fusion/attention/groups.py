"""Groups of sinks that one kernel computes: a softmax and its products in one pass, and sinks of rows or of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from runtime.fusion.attention.score_axes import source
from runtime.fusion.attention.scores import ScoreRegion, is_softmax_exponential
from runtime.fusion.attention.sinks import Sink
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class SinkGroup:
    """Sinks that one fusion computes.

    is_online: they are the largest scores of the rows, the sums of the exponentials, and the products of these with
    values, which one pass over the columns computes. Otherwise no sink depends on another one.
    """

    region: ScoreRegion
    sinks: tuple[Sink, ...]
    is_online: bool = False


@dataclass
class Dependences:
    """Sets of sinks on which instructions depend, as bit masks; grouped sinks depend on what their group depends on.

    groups: sinks that are computed by one kernel, so far.
    """

    bit_of: dict[HloInstruction, int]
    needs: dict[HloInstruction, int]
    groups: list[list[Sink]] = field(default_factory=list)

    @staticmethod
    def of(order: Iterable[HloInstruction], regions: Iterable[ScoreRegion]) -> Dependences:
        """Return the dependences within one computation, whose instructions ``order`` has, operands first."""
        sinks = [sink.instruction for region in regions for sink in region.sinks]
        bit_of = {x: 1 << n for n, x in enumerate(sinks)}
        needs: dict[HloInstruction, int] = {}
        for x in order:
            found = 0
            for before in (*x.operands, *x.control_predecessors):
                found |= needs[before] | bit_of.get(before, 0)
            needs[x] = found
        return Dependences(bit_of, needs)

    def members(self, sinks: Iterable[Sink]) -> int:
        """Return the set of ``sinks``."""
        found = 0
        for sink in sinks:
            found |= self.bit_of[sink.instruction]
        return found

    def of_all(self, instructions: Iterable[HloInstruction]) -> int:
        """Return the set of the sinks that are among ``instructions``, or on which one of them depends."""
        found = 0
        for x in instructions:
            found |= self.needs[x] | self.bit_of.get(x, 0)
        while True:
            more = found
            for group in self.groups:
                members = self.members(group)
                if members & more:
                    more |= members | self.needed(group)
            if more == found:
                return found
            found = more

    def needed(self, sinks: Iterable[Sink]) -> int:
        """Return the set of the sinks on which ``sinks`` depend, without regard to groups."""
        found = 0
        for sink in sinks:
            found |= self.needs[sink.instruction]
        return found


def sink_groups(region: ScoreRegion, dependences: Dependences) -> list[SinkGroup]:
    """Return the groups of the sinks of ``region``, those of softmaxes first."""
    groups = _softmaxes(region, dependences)
    done = {sink for group in groups for sink in group.sinks}
    others: list[list[Sink]] = []
    for sink in region.sinks:
        if sink in done:
            continue
        for group in others:
            if group[0].of_rows is sink.of_rows and _are_independent(group, sink, dependences):
                group.append(sink)
                break
        else:
            others.append([sink])
            dependences.groups.append(others[-1])
    return [*groups, *(SinkGroup(region, tuple(group)) for group in others)]


def _are_independent(group: Sequence[Sink], sink: Sink, dependences: Dependences) -> bool:
    """Return whether neither ``sink`` depends on one of ``group``, nor the reverse."""
    ahead = dependences.of_all(sink.instruction.operands)
    needed = dependences.of_all(x for one in group for x in one.instruction.operands)
    return not ahead & dependences.members(group) and not needed & dependences.members((sink,))


# ---- softmaxes in one pass
def _softmaxes(region: ScoreRegion, dependences: Dependences) -> list[SinkGroup]:
    found: list[SinkGroup] = []
    for x in region.axes_of:
        sinks = _Softmax(x, region).sinks(dependences) if is_softmax_exponential(x, region) else []
        if len(sinks) > 1 and not any(sink in group.sinks for group in found for sink in sinks):
            dependences.groups.append(sinks)
            found.append(SinkGroup(region, tuple(sinks), is_online=True))
    return found


class _Softmax:
    """The softmax whose exponentials are ``exponentials``."""

    def __init__(self, exponentials: HloInstruction, region: ScoreRegion) -> None:
        self._exponentials = exponentials
        self._region = region
        self._sinks = [sink for sink in region.sinks if sink.of_rows]

    def sinks(self, dependences: Dependences) -> list[Sink]:
        """Return the largest scores, the sums of exponentials and their products; none if the shift is another one."""
        scores, shift = self._exponentials.operand(0).operands
        unviewed = self._region.unviewed(scores)
        largest = self._row(shift, self._exponentials, ReductionKind.MAX)
        if largest is None or self._region.unviewed(largest.scores) is not unviewed:
            return []
        sums = [
            sink
            for sink in self._sinks
            if sink.kind is ReductionKind.SUM and self._factors(sink.scores, ()) == []
        ]
        own = dependences.members((largest, *sums))
        found = [largest, *sums]
        for sink in self._sinks:
            factors = self._factors(sink.scores, sums) if sink.kind is None else None
            if factors is not None:
                needs = dependences.of_all((sink.factor, *factors))
                if not needs & (own | dependences.members(found)):
                    found.append(sink)
        return found

    def _row(self, x: HloInstruction, user: HloInstruction, kind: ReductionKind) -> Sink | None:
        """Return the sink of ``kind`` that the operand ``x`` of the score matrix ``user`` repeats along the columns."""
        value, axes = source(x, self._region.axes_of[user])
        for sink in self._sinks:
            if sink.instruction is value and sink.axes == axes and sink.kind is kind:
                return sink
        return None

    def _factors(self, x: HloInstruction, sums: Sequence[Sink]) -> list[HloInstruction] | None:
        """Return the values, other than ``sums``, that multiply or divide the exponentials in ``x`` or mask them.

        The result is None if ``x`` is not proportional to the exponentials.
        """
        factors: list[HloInstruction] = []
        while x is not self._exponentials:
            inside = [one for one in x.operands if one in self._region.axes_of]
            if x not in self._region.axes_of or len(inside) != 1:
                return None
            if x.opcode in (Opcode.MULTIPLY, Opcode.DIVIDE):
                if x.opcode is Opcode.DIVIDE and x.operand(0) is not inside[0]:
                    return None
                (other,) = (one for one in x.operands if one is not inside[0])
                if self._row(other, x, ReductionKind.SUM) not in sums:
                    factors.append(other)
            elif x.opcode is Opcode.SELECT and self._region.is_masked(x):
                factors.append(x.operand(0))
            elif x.opcode is not Opcode.CONVERT and not self._region.is_view(x):
                return None
            x = inside[0]
        return factors
