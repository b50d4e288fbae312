"""Break collective-permutes round a ring into ways without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from collectives.passes.collective_permute_matching import (
    is_target,
    match_permute,
    permute_like,
    selected,
)
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.source_target_pairs import Pair


@register_pass
@dataclass(frozen=True)
class CollectivePermuteCycleDecomposer(OpExpander):
    """Send the last pair of every cycle in a permute of its own, and let its target select that result.

        r = collective-permute(x), {{0,1},{1,2},{2,0}}     =>      back = collective-permute(x), {{2,0}}
                                                                   on = collective-permute(x), {{0,1},{1,2}}
                                                                   r = select(device is 0, back, on)

    Then sends and receives (collective-permute-decomposer) do not wait for each other in a cycle. The pair that is
    taken out of each cycle is the one with the least id as its target. A device that sends to itself does not wait.
    ``min_bytes``: smaller permutes stay.
    """

    name: ClassVar[str] = "collective-permute-cycle-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.COLLECTIVE_PERMUTE,)
    min_bytes: int = 0

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction | None:
        permute = match_permute(x)
        back = closing_pairs(permute.pairs) if permute is not None else []
        if permute is None or not back or x.shape.byte_size < self.min_bytes:
            return None
        closed = set(back)
        on = [pair for pair in permute.pairs if pair not in closed]
        returned = permute_like(b, permute, x.operands, back)
        passed_on = permute_like(b, permute, x.operands, on, new_channel=True)
        return selected(b, is_target(b, permute, back), returned, passed_on)


def closing_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Return for each cycle of two or more ids the pair whose target is its least id. No id is a source or a target
    twice."""
    following = dict(pairs)
    closing: list[Pair] = []
    seen: set[int] = set()
    for start in sorted(following):
        if start in seen:
            continue
        at, path = start, [start]
        while following.get(at, start) != start:
            at = following[at]
            path.append(at)
        if following.get(at) == start and at != start:
            closing.append((at, start))
        seen.update(path)
    return closing
