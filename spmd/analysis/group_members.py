"""Check that the replica groups of a per-device program contain every device that it runs on, and suit its shapes."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_mode, group_size, id_count
from spmd.shape import as_array, leaves


def require_every_device(module: HloModule) -> None:
    """Raise ShapeError for a collective whose groups leave out devices of ``module.num_partitions`` and replicas, or
    whose result has more or fewer parts than its groups have devices.
    """
    for x in module.all_instructions():
        if x.opcode in (Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER):
            _require_parts(x, module)
        if isinstance(x.attrs, CollectiveAttrs) and not x.attrs.replica_groups.is_all:
            named = _named_ids(x)
            count = id_count(group_mode(x), module.num_partitions, module.replica_count)
            if named < count:
                devices = module.num_partitions * module.replica_count
                raise ShapeError(
                    f"{x!r}: its replica groups name {named} of {count} ids, so the program does not run on {devices} "
                    "devices: each has to be in a group"
                )


def _require_parts(x: HloInstruction, module: HloModule) -> None:
    dimension = x.attrs_as(CollectiveAttrs).dimension
    assert dimension is not None
    result = next(as_array(leaf) for _, leaf in leaves(x.shape))
    sizes = result.dims[dimension], x.operand(0).array_shape.dims[dimension]
    members = group_size(x) or 1  # without counts in the header: one device
    if max(sizes) != min(sizes) * members:
        raise ShapeError(
            f"{x!r}: its groups have {members} devices, by {module.num_partitions} partitions and "
            f"{module.replica_count} replicas, but dimension {dimension} has {sizes[1]} elements before and {sizes[0]} "
            "after"
        )


def _named_ids(x: HloInstruction) -> int:
    """Return the number of ids in the groups of ``x``, without expanding compact forms."""
    groups = x.attrs_as(CollectiveAttrs).replica_groups
    spanned = groups.spanned()
    return sum(map(len, groups.expand(0))) if spanned is None else spanned
