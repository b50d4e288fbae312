"""Matching of collective-permutes, for several passes: their pairs, and whether all devices receive."""

from __future__ import annotations

from functools import lru_cache

from collectives.passes.groups import states_devices
from spmd.device import CollectiveGroupMode
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.ops.groups import group_mode, id_count
from spmd.passes.rewrite import is_pinned
from spmd.shape import ArrayShape
from spmd.source_target_pairs import ListedPairs, Pair, SourceTargetPairs


@dataclass(frozen=True)
class Permute:
    """A collective-permute. ``ways``: (source, target), of ``ids`` ids that mean what ``mode`` says, by source.

    A target of no pair receives zeros.
    """

    instruction: HloInstruction
    ways: ListedPairs
    mode: CollectiveGroupMode
    ids: int

    @property
    def operand(self) -> HloInstruction:
        return self.instruction.operand(0)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return self.ways.pairs

    @property
    def reaches_all(self) -> bool:
        """Return whether every device is a target, and so a source."""
        return len(self.ways) == self.ids

    @property
    def stays(self) -> bool:
        """Return whether every source sends to itself."""
        attrs = self.instruction.attrs_as(CollectivePermuteAttrs)
        return not attrs.source_target_pairs.moved


def match_permutes(x: HloInstruction) -> Permute | None:
    """Return the permute. Returns None for other instructions, for pinned ones, for in-place permutes with offsets, and
    if the module's header does not state all devices.
    """
    if x.opcode is not Opcode.COLLECTIVE_PERMUTE or is_pinned(x):
        return None
    attrs = x.attrs_as(CollectivePermuteAttrs)
    assert x.parent is not None
    module = x.parent.module
    if module is None or not states_devices(module) or attrs.slice_sizes:
        return None
    mode = group_mode(x)
    ids = id_count(mode, module.num_partitions, module.replica_count)
    if attrs.source_target_pairs.largest >= ids:
        return None
    return Permute(x, _by_source(attrs.source_target_pairs), mode, ids)


@lru_cache(maxsize=256)
def _by_source(pairs: SourceTargetPairs) -> ListedPairs:
    """Return one object for equal sets of pairs in any representation and order: programs have few, and compare them
    often.
    """
    return _only_one(ListedPairs(tuple(sorted(pairs.expand()))))


@lru_cache(maxsize=256)
def _only_one(pairs: ListedPairs) -> ListedPairs:
    return pairs


def match_permute(x: HloInstruction) -> Permute | None:
    """Match a collective-permute of one array, as ``match_permutes``."""
    return match_permutes(x) if isinstance(x.shape, ArrayShape) else None
