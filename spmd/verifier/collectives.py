"""Rules of communication: the participants, and that asynchronous starts and dones match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spmd.errors import SpmdError
from spmd.hlo.collective_opcodes import PERMUTES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.checks import set_text
from spmd.ops.groups import stated_ids
from spmd.ops.in_place_permute import copies_per_device
from spmd.ops.inference import describe
from spmd.verifier.rule import Rule

#: Kinds whose result size depends on the group: all groups must have one size.
_EQUAL_GROUPS = (
    Opcode.ALL_GATHER,
    Opcode.ALL_GATHER_START,
    Opcode.REDUCE_SCATTER,
    Opcode.ALL_TO_ALL,
)

#: Done opcode -> opcodes whose result it may complete. Generic updates may come between start and done.
STARTS_OF = {
    Opcode.ALL_REDUCE_DONE: (Opcode.ALL_REDUCE_START,),
    Opcode.ALL_GATHER_DONE: (Opcode.ALL_GATHER_START,),
    Opcode.COLLECTIVE_PERMUTE_DONE: (Opcode.COLLECTIVE_PERMUTE_START,),
    Opcode.COPY_DONE: (Opcode.COPY_START,),
    Opcode.SEND_DONE: (Opcode.SEND,),
    Opcode.RECV_DONE: (Opcode.RECV,),
    Opcode.ASYNC_UPDATE: (Opcode.ASYNC_START, Opcode.ASYNC_UPDATE),
    Opcode.ASYNC_DONE: (Opcode.ASYNC_START, Opcode.ASYNC_UPDATE),
}


def groups_are_sound(module: HloModule) -> Iterator[str]:
    for x in module.all_instructions():
        if isinstance(x.attrs, CollectiveAttrs):
            for problem in _group_problems(x):
                yield f"{problem}: {describe(x)}"


def _group_problems(x: HloInstruction) -> Iterator[str]:
    groups = x.attrs_as(CollectiveAttrs).replica_groups
    try:
        count = stated_ids(x)
        spanned = groups.spanned()
        listed = () if groups.is_all or spanned is not None else groups.expand(1)
    except SpmdError as error:
        yield str(error)
        return
    if spanned is not None:
        if count is not None and spanned > count:
            yield f"ids must lie in 0..{count - 1}, the groups hold {spanned} ids"
        return
    members = [i for group in listed for i in group]
    if len(set(members)) != len(members):
        yield f"a member stands in two places of the groups {_listed(listed)}"
    limit = len(members) if count is None else count  # without a count, XLA numbers the members
    if any(not 0 <= i < limit for i in members):
        yield f"ids must lie in 0..{limit - 1}, the groups are {_listed(listed)}"
    if x.opcode in _EQUAL_GROUPS and len({len(group) for group in listed}) > 1:
        yield f"the groups have different sizes: {_listed(listed)}"


def _listed(groups: Sequence[tuple[int, ...]]) -> str:
    """Return the groups as in text; only the first ones if there are very many."""
    shown = [set_text(group[:64]) for group in groups[:16]]
    more = ",..." if len(groups) > 16 or any(len(group) > 64 for group in groups) else ""
    return f"{{{','.join(shown)}{more}}}"


def pairs_are_sound(module: HloModule) -> Iterator[str]:
    for x in module.all_instructions():
        if x.opcode in PERMUTES:
            for problem in _pair_problems(x):
                yield f"{problem}: {describe(x)}"


def _pair_problems(x: HloInstruction) -> Iterator[str]:
    pairs = x.attrs_as(CollectivePermuteAttrs).source_target_pairs
    allowed = copies_per_device(x)
    for repeats, what in zip(pairs.repeats(), ("source", "target"), strict=True):
        if repeats > allowed:
            often = "twice" if allowed == 1 else f"more than {allowed} times"
            yield f"a device is {what} {often} in {_listed(pairs.part(0, 17))}"
    count = stated_ids(x)
    if count is not None and (pairs.smallest < 0 or pairs.largest >= count):
        yield f"ids must lie in 0..{count - 1}, the pairs are {_listed(pairs.part(0, 17))}"
    elif pairs.smallest < 0:
        yield f"ids must not be negative, the pairs are {_listed(pairs.part(0, 17))}"


def async_halves_match(module: HloModule) -> Iterator[str]:
    """Yield violations of: every done completes a start of its kind, and every start is completed exactly once.

    A send or receive may travel in a tuple, through loops, to its done (XLA's pipelined transfers). Such a done is not
    searched for.
    """
    starts = {start for kinds in STARTS_OF.values() for start in kinds}
    for x in module.all_instructions():
        wanted = STARTS_OF.get(x.opcode)
        if wanted is not None and x.operand(0).opcode not in wanted and not _is_carried(x):
            kinds = " or ".join(map(str, wanted))
            yield f"{x.opcode} must complete a {kinds}, completes {x.operand(0).name}: {describe(x)}"
        if x.opcode in starts:
            dones = _dones(x.users)
            missing = not dones and module.stage >= Stage.OPTIMIZED and not _is_carried_away(x)
            if len(dones) > 1 or missing:
                yield f"{x.opcode} must be completed once, is completed {len(dones)} times: {describe(x)}"


def _is_carried(done: HloInstruction) -> bool:
    carried = done.operand(0).opcode is Opcode.GET_TUPLE_ELEMENT
    return carried and done.opcode in (Opcode.SEND_DONE, Opcode.RECV_DONE)


def _is_carried_away(start: HloInstruction) -> bool:
    carried = any(user.opcode is Opcode.TUPLE for user in start.users)
    return carried and start.opcode in (Opcode.SEND, Opcode.RECV)


def _dones(users: Iterable[HloInstruction]) -> list[HloInstruction]:
    return [user for user in users if user.opcode in STARTS_OF]


COLLECTIVE_RULES = (
    Rule(
        "groups",
        "replica groups are disjoint, in range and of one size where sizes matter",
        groups_are_sound,
    ),
    Rule("pairs", "source and target pairs are unique and in range", pairs_are_sound),
    Rule(
        "async",
        "every done completes a start of its kind, every start once",
        async_halves_match,
    ),
)
