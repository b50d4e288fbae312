"""The scheduler's expectations of an executable's collectives, as JSON in its archive."""

from __future__ import annotations

from typing import Any

from collectives.schedule.phases import is_blocking, is_start
from collectives.schedule.scheduled_overlap import ScheduledCollective, ScheduledOverlap
from runtime.saved_archive import SavedExecutableError
from spmd.hlo import HloModule
from spmd.json_fields import JsonFields
from spmd.machine.bounds import COUNT

#: Bounds of the time that a limit of the schedule costs, in seconds.
_SECONDS = (0.0, 1e9)


def overlap_json(overlap: ScheduledOverlap) -> dict[str, Any]:
    """Return the JSON value that ``read_overlap`` reads. The writer must check that ``read_overlap`` accepts it."""
    return {
        "machine": overlap.machine,
        "per_exchange": overlap.per_exchange,
        "collectives": [
            [one.name, one.limited, one.in_flight_limited] for one in overlap.collectives
        ],
    }


def read_overlap(found: object, module: HloModule, where: str) -> ScheduledOverlap:
    """Read the scheduler's expectations. Raises SavedExecutableError, naming ``where``, if they are not valid.

    Each collective that is named must be one of ``module``, and none may be named twice.
    """
    fields = JsonFields(found, where, SavedExecutableError)
    rows = fields.pop("collectives")
    names = {x.name for x in module.all_instructions() if is_start(x) or is_blocking(x)}
    wanted = f"a list of at most {len(names)}, of the module's collectives each once"
    if not isinstance(rows, list) or len(rows) > len(names):
        raise SavedExecutableError(f"{where}: collectives must be {wanted}")
    collectives = tuple(
        _collective(row, f"{where}: collectives[{n}]") for n, row in enumerate(rows)
    )
    listed = [one.name for one in collectives]
    if len(set(listed)) < len(listed) or not names.issuperset(listed):
        raise SavedExecutableError(f"{where}: collectives must be {wanted}")
    overlap = ScheduledOverlap(
        machine=fields.text("machine"),
        per_exchange=fields.integer("per_exchange", COUNT),
        collectives=collectives,
    )
    fields.done()
    return overlap


def _collective(row: object, where: str) -> ScheduledCollective:
    if not isinstance(row, list) or len(row) != 1 + len(_NUMBERS) or not isinstance(row[0], str):
        raise SavedExecutableError(f"{where} must be a name and {len(_NUMBERS)} numbers")
    fields = JsonFields(dict(zip(_NUMBERS, row[1:], strict=True)), where, SavedExecutableError)
    return ScheduledCollective(row[0], *(fields.number(name, _SECONDS) for name in _NUMBERS))


_NUMBERS = ("limited", "in_flight_limited")
