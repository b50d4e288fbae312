"""Check that the replica groups of a per-device program contain every device that it runs on."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_mode, id_count


def require_every_device(module: HloModule) -> None:
    """Raise ShapeError for a collective whose groups leave out devices of ``module.num_partitions`` and replicas."""
    for x in module.all_instructions():
        if isinstance(x.attrs, CollectiveAttrs) and not x.attrs.replica_groups.is_all:
            named = _named_ids(x)
            count = id_count(group_mode(x), module.num_partitions, module.replica_count)
            if named < count:
                devices = module.num_partitions * module.replica_count
                raise ShapeError(
                    f"{x!r}: its replica groups name {named} of {count} ids, so the program does not run on {devices} "
                    "devices: each has to be in a group"
                )


def _named_ids(x: HloInstruction) -> int:
    """Return the number of ids in the groups of ``x``, without expanding compact forms."""
    groups = x.attrs_as(CollectiveAttrs).replica_groups
    spanned = groups.spanned()
    return sum(map(len, groups.expand(0))) if spanned is None else spanned
