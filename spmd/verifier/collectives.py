"""Rules of communication: who takes part, and that asynchronous halves belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from spmd.errors import SpmdError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.groups import group_mode, id_count, states_devices
from spmd.ops.in_place_permute import copies_per_device
from spmd.ops.inference import describe
from spmd.verifier.rule import Rule

_PERMUTES = (Opcode.COLLECTIVE_PERMUTE, Opcode.COLLECTIVE_PERMUTE_START)

#: Kinds whose result size depends on the group: all groups must have one size.
_EQUAL_GROUPS = (
    Opcode.ALL_GATHER,
    Opcode.ALL_GATHER_START,
    Opcode.REDUCE_SCATTER,
    Opcode.ALL_TO_ALL,
)

#: Each done with the opcodes whose result it may complete; generic updates stand between start and done.
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
            for problem in _group_problems(module, x):
                yield f"{problem}: {describe(x)}"


def _group_problems(module: HloModule, x: HloInstruction) -> Iterator[str]:
    try:
        count = id_count(group_mode(x), module.num_partitions, module.replica_count)
        stated = x.attrs_as(CollectiveAttrs).replica_groups
        spanned = count if stated.is_all else stated.spanned()
        groups = stated.expand(count) if spanned is None else ()
    except SpmdError as error:
        yield str(error)
        return
    if spanned is not None:
        if states_devices(module) and spanned > count:
            yield f"ids must lie in 0..{count - 1}, the groups hold {spanned} ids"
        return
    members = [i for group in groups for i in group]
    if len(set(members)) != len(members):
        yield f"a member stands in two places of the groups {_listed(groups)}"
    if states_devices(module) and any(not 0 <= i < count for i in members):
        yield f"ids must lie in 0..{count - 1}, the groups are {_listed(groups)}"
    if x.opcode in _EQUAL_GROUPS and len({len(group) for group in groups}) > 1:
        yield f"the groups have different sizes: {_listed(groups)}"


def _listed(groups: Sequence[tuple[int, ...]]) -> str:
    """The groups as in text; the first ones of very many."""
    shown = ["{" + ",".join(map(str, group[:64])) + "}" for group in groups[:16]]
    more = ",..." if len(groups) > 16 or any(len(group) > 64 for group in groups) else ""
    return f"{{{','.join(shown)}{more}}}"


def pairs_are_sound(module: HloModule) -> Iterator[str]:
    for x in module.all_instructions():
        if x.opcode in _PERMUTES:
            for problem in _pair_problems(module, x):
                yield f"{problem}: {describe(x)}"


def _pair_problems(module: HloModule, x: HloInstruction) -> Iterator[str]:
    pairs = x.attrs_as(CollectivePermuteAttrs).source_target_pairs
    text = _listed(pairs)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    allowed = copies_per_device(x)
    for ids, what in ((sources, "source"), (targets, "target")):
        if max(Counter(ids).values(), default=0) > allowed:
            often = "twice" if allowed == 1 else f"more than {allowed} times"
            yield f"a device is {what} {often} in {text}"
    count = id_count(group_mode(x), module.num_partitions, module.replica_count)
    if states_devices(module) and any(not 0 <= i < count for i in (*sources, *targets)):
        yield f"ids must lie in 0..{count - 1}, the pairs are {text}"


def halves_belong_together(module: HloModule) -> Iterator[str]:
    """Every done completes a start of its kind, every start is completed exactly once."""
    starts = {start for kinds in STARTS_OF.values() for start in kinds}
    for x in module.all_instructions():
        wanted = STARTS_OF.get(x.opcode)
        if wanted is not None and x.operand(0).opcode not in wanted:
            kinds = " or ".join(map(str, wanted))
            yield f"{x.opcode} must complete a {kinds}, completes {x.operand(0).name}: {describe(x)}"
        if x.opcode in starts:
            dones = _dones(x.users)
            if len(dones) > 1 or (not dones and module.stage >= Stage.OPTIMIZED):
                yield f"{x.opcode} must be completed once, is completed {len(dones)} times: {describe(x)}"


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
        halves_belong_together,
    ),
)
