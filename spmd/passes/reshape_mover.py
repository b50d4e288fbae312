"""Compute first, rearrange then: elementwise operations move above the reshapes and transposes of their operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeAlias

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import DimensionsAttrs
from spmd.passes.algebraic.match import splat
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned
from spmd.shape import ArrayShape

#: A rearrangement without its operand: opcode, sizes before, sizes after, order of a transpose.
Movement: TypeAlias = tuple[Opcode, tuple[int, ...], tuple[int, ...], tuple[int, ...]]

_UNMOVED = (Opcode.COPY, Opcode.MAP)


@register_pass
@dataclass(frozen=True)
class ReshapeMover(FueledPass):
    """Move equal rearrangements of all operands of elementwise operations behind them, if fewer rearrangements remain.

        t = f32[6,4] transpose(a), dimensions={1,0}              s = f32[4,6] add(a, b)
        u = f32[6,4] transpose(b), dimensions={1,0}      =>      e = f32[4,6] exponential(s)
        s = f32[6,4] add(t, u)                                   r = f32[6,4] transpose(e), dimensions={1,0}
        r = f32[6,4] exponential(s)

    A group is a set of operations that can be computed before one kind of rearrangement. It moves if more
    rearrangements become unused than new ones of its results are needed: a result that only rearrangements of the same
    kind read needs none, since the two become one. Every value keeps its bits.
    """

    name: ClassVar[str] = "reshape-mover"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            while _move_once(computation, scope, fuel):
                changed = True
        return changed


def _move_once(computation: HloComputation, scope: ModuleScope, fuel: Fuel) -> bool:
    """Try each rearrangement of the computation once. Returns whether any group was moved."""
    changed = False
    seen: set[HloInstruction] = set()
    for entry in computation.post_order():
        if fuel.is_spent:
            break
        movement = movement_of(entry) if entry.parent is not None else None
        if movement is None or entry in seen:
            continue
        for group in groups(entry, movement):
            seen.update(group.entries)
            if is_worth_it(group):
                _move(group, scope)
                fuel.burn()
                changed = True
                break
    return changed


@dataclass(frozen=True)
class Group:
    """``members`` (in post-order) read ``entries``, all moved by ``movement``, each other, and repeated scalars."""

    movement: Movement
    entries: tuple[HloInstruction, ...]
    members: tuple[HloInstruction, ...]


# ---- finding
def movement_of(x: HloInstruction) -> Movement | None:
    """Return the movement of a reshape or transpose. Returns None for another op, and for one that is pinned."""
    if x.opcode not in (Opcode.RESHAPE, Opcode.TRANSPOSE) or is_pinned(x):
        return None
    order = x.attrs_as(DimensionsAttrs).dimensions if x.opcode is Opcode.TRANSPOSE else ()
    return x.opcode, x.operand(0).dims, x.dims, order


def groups(entry: HloInstruction, movement: Movement) -> Iterator[Group]:
    """Yield the largest group that ``entry`` belongs to, then the part of it that can be moved without the rest."""
    largest = _members(entry, movement)
    if largest:
        yield _group(movement, largest)
    direct = [m for m in largest if all(_fits(o, movement, {}) for o in m.operands)]
    if len(direct) < len(largest):
        yield _group(movement, direct)


def _members(entry: HloInstruction, movement: Movement) -> list[HloInstruction]:
    """Return the members of the group of ``entry``, operands first."""
    members: dict[HloInstruction, None] = {}
    work = [entry]
    while work:
        for user in work.pop().users:
            if user in members or not _can_move(user, movement):
                continue
            if all(_fits(operand, movement, members) for operand in user.operands):
                members[user] = None
                work.append(user)
                work.extend(o for o in user.operands if movement_of(o) == movement)
    return list(members)


def _can_move(x: HloInstruction, movement: Movement) -> bool:
    """Return whether ``x`` is elementwise over the moved shape and not pinned."""
    if not definition(x.opcode).elementwise or x.opcode in _UNMOVED:
        return False
    if not isinstance(x.shape, ArrayShape) or x.dims != movement[2]:
        return False
    return not is_pinned(x)


def _fits(operand: HloInstruction, movement: Movement, members: dict[HloInstruction, None]) -> bool:
    """Return whether the operand exists, or can be made without cost, before the movement."""
    if operand in members or movement_of(operand) == movement:
        return True
    if not operand.dims and movement[2]:
        return True  # one bound or one predicate for all elements
    return _is_repeated_scalar(operand)


def _is_repeated_scalar(x: HloInstruction) -> bool:
    """Return whether ``x`` is one scalar for all elements, so that it can be made in any shape."""
    if x.opcode is Opcode.BROADCAST and not x.operand(0).dims:
        return True
    return x.opcode is Opcode.CONSTANT and splat(x) is not None


def _group(movement: Movement, members: list[HloInstruction]) -> Group:
    inside = set(members)
    entries = dict.fromkeys(
        o for m in members for o in m.operands if o not in inside and movement_of(o) == movement
    )
    return Group(movement, tuple(entries), tuple(members))


# ---- judging
def is_worth_it(group: Group) -> bool:
    """Return whether the movement removes more rearrangements than it adds."""
    members = set(group.members)
    gone = sum(members.issuperset(entry.users) and not entry.is_root for entry in group.entries)
    return gone > len(list(_costly_results(group, members)))


def results(group: Group) -> Iterator[HloInstruction]:
    """Yield the members that are read outside the group."""
    members = set(group.members)
    for member in group.members:
        if member.is_root or not members.issuperset(member.users):
            yield member


def _costly_results(group: Group, members: set[HloInstruction]) -> Iterator[HloInstruction]:
    """Yield the results whose new rearrangement merges with no other."""
    opcode = group.movement[0]
    for result in results(group):
        outside = [user for user in result.users if user not in members]
        if result.is_root or not all(user.opcode is opcode for user in outside):
            yield result


# ---- moving
def _move(group: Group, scope: ModuleScope) -> None:
    before: dict[HloInstruction, HloInstruction] = {e: e.operand(0) for e in group.entries}
    dims = group.movement[1]
    for member in group.members:
        b = builder_at(member, scope)
        operands = [
            before[o] if o in before else _reshaped_scalar(o, group.movement, b)
            for o in member.operands
        ]
        shape = member.array_shape.without_layout().with_dims(dims)
        before[member] = b.create(member.opcode, operands, member.attrs, shape=shape)
    for result in list(results(group)):
        moved = _moved(before[result], group.movement, builder_at(result, scope))
        result.replace_all_uses_with(moved)
    for old in (*reversed(group.members), *group.entries):
        if not old.users and not old.is_root:
            assert old.parent is not None
            old.parent.remove(old)


def _reshaped_scalar(x: HloInstruction, movement: Movement, b: Builder) -> HloInstruction:
    _, dims, after, _ = movement
    if not x.dims and after:
        return x
    if x.opcode is Opcode.BROADCAST:
        return b.broadcast_scalar(x.operand(0), dims)
    return b.full(x.array_shape.without_layout().with_dims(dims), splat(x))


def _moved(x: HloInstruction, movement: Movement, b: Builder) -> HloInstruction:
    opcode, _, sizes, order = movement
    return b.transpose(x, order) if opcode is Opcode.TRANSPOSE else b.reshape(x, sizes)
