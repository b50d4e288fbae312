"""Rewrite of all-to-alls so that the group's members have a dimension of their own, which layouts may move."""

from __future__ import annotations

from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.instruction import Annotations
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.groups import group_size
from spmd.passes.rewrite import is_annotated


def expose_members(module: HloModule, scope: ModuleScope) -> bool:
    """Rewrite each all-to-all whose reader reshapes its split dimension to [members, block].

    The new all-to-all splits a dimension of size ``members``, which may have any position in memory.

    e = f32[8,160] all-to-all(x), dimensions={0}         =>   y = f32[2,4,160] reshape(x)
    r = f32[2,4,160] reshape(e)                               r = f32[2,4,160] all-to-all(y), dimensions={0}

    Returns whether the module changed.
    """
    changed = False
    for computation in module.computations_post_order():
        for x in list(computation.with_opcode(Opcode.ALL_TO_ALL)):
            members = _members_apart(x)
            if members is not None:
                _expose(x, members, Builder(computation, scope))
                changed = True
    return changed


def _members_apart(x: HloInstruction) -> int | None:
    """Return the number of members if a reader of ``x`` reshapes the members to a dimension of their own, else None."""
    attrs = x.attrs_as(CollectiveAttrs)
    if x.num_operands != 1 or attrs.dimension is None or attrs.constrain_layout:
        return None
    if x.has_control_edges or is_annotated(x):
        return None
    count, d = group_size(x), attrs.dimension
    if count is None or count < 2 or x.dims[d] == count or 0 in x.dims:
        return None
    apart = (*x.dims[:d], count, x.dims[d] // count, *x.dims[d + 1 :])
    for user in x.users:
        if user.opcode is Opcode.RESHAPE and user.dims[: d + 1] == apart[: d + 1]:
            return count
    return None


def _expose(x: HloInstruction, members: int, b: Builder) -> None:
    """Replace ``x`` by an all-to-all that splits a dimension of size ``members``, and the reshapes that read ``x``."""
    attrs = x.attrs_as(CollectiveAttrs)
    d = attrs.dimension
    assert d is not None
    apart = (*x.dims[:d], members, x.dims[d] // members, *x.dims[d + 1 :])
    b.annotations = Annotations(metadata=x.annotations.metadata)
    exchange = b.create(Opcode.ALL_TO_ALL, (b.reshape(x.operand(0), apart),), attrs)
    exchange.annotations = x.annotations
    for user in x.users:
        if user.opcode is Opcode.RESHAPE and not user.has_control_edges:
            user.replace_all_uses_with(
                exchange if user.dims == apart else b.reshape(exchange, user.dims)
            )
            b.computation.remove(user)
    if x.num_users or x.is_root:
        x.replace_all_uses_with(b.reshape(exchange, x.dims))
    b.computation.remove(x)
