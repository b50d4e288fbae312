"""Trip counts that a user states, for loops whose length nothing in the module says.

    --trips while.6=512     =>     while(..), backend_config={"known_trip_count":{"n":"512"}}

The statement is the one that XLA writes, so that all that asks for a trip count finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spmd.analysis.trip_count import trip_count
from spmd.errors import SpmdError
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.name_suggestions import did_you_mean

#: Loops that an error names, at most.
_MOST = 5


class TripCountError(SpmdError):
    """A loop of unknown length, or a statement about a loop that cannot be made."""


def state_trips(module: HloModule, stated: Iterable[tuple[str, int]]) -> None:
    """State trip counts of loops of ``module`` by name; "" stands for each loop of unknown length without its own.

    Raises TripCountError for a name that no loop has, and for a loop whose length is known and another.
    """
    counts = dict(stated)
    loops = {x.name: x for x in module.all_instructions() if x.opcode is Opcode.WHILE}
    for name in counts:
        if name and name not in loops:
            meant = did_you_mean(name, loops) or f"; loops: {_listed(loops)}"
            raise TripCountError(f"no loop is named {name!r}{meant}")
    for name, loop in loops.items():
        known, count = trip_count(loop), counts.get(name, counts.get(""))
        if known is not None and counts.get(name, known) != known:
            raise TripCountError(f"{name} has {known} trips, not {counts[name]}")
        if known is None and count is not None:
            stating = f'{{"known_trip_count":{{"n":"{count}"}}}}'
            loop.annotations = replace(loop.annotations, backend_config=stating)


def require_trips(module: HloModule, given: HloModule | None = None) -> None:
    """Raise TripCountError if ``module`` has loops of unknown length.

    ``given`` is what ``module`` was compiled from, whose loops can be stated. If the compiler has copied or renamed a
    loop, the message names all loops of unknown length of ``given``.
    """
    unknown = _of_unknown_length(module)
    if not unknown:
        return
    statable = unknown if given is None else _of_unknown_length(given)
    names = unknown if set(unknown) <= set(statable) else statable or unknown
    raise TripCountError(
        f"unknown trip count of loops: {_listed(names)}; state it by --trips {names[0]}=N for one loop, or --trips N "
        "for all"
    )


def _of_unknown_length(module: HloModule) -> list[str]:
    return [
        x.name
        for x in module.all_instructions()
        if x.opcode is Opcode.WHILE and trip_count(x) is None
    ]


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:_MOST]) + (", .." if len(found) > _MOST else "") or "none"
