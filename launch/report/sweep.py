"""A sweep for scripts and for readers: a row for each value of a field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectives.simulate.reasons import brief
from collectives.simulate.result import Simulation
from launch.ranks.messages import printable_lines
from launch.report.figures import size_text
from launch.report.simulation import as_json, fits
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: Fields of a simulation that a row has.
_FIELDS = (
    *("topology", "devices", "step_s", "compute_s", "slowed_s", "communication_s", "exposed_s"),
    *("peak_bytes", "memory_limit", "fits", "notes"),
)
_HEAD = ("devices", "step", "compute", "communication", "exposed", "memory")


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The step ``found`` on ``machine`` at one value of the sweep's field; ``value`` is its text."""

    value: str
    found: Simulation
    machine: MachineDescription


def sweep_json(name: str, rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """Return an object for each row: the field's ``name``, its ``value`` as a text, and fields of ``spmd simulate
    --json``."""
    found = []
    for row in rows:
        fields = as_json(row.found, row.machine)
        found.append(
            {"name": name, "value": row.value, **{field: fields[field] for field in _FIELDS}}
        )
    return found


def format_sweep(name: str, rows: Sequence[SweepRow]) -> str:
    """Return the rows as a table."""
    table = [(name, *_HEAD), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [f"{rows[0].found.module}, one row for each value of {name}"]
    for cells, excess in zip(table, ("", *map(_excess, rows)), strict=True):
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {'  '.join(padded)}{excess}")
    notes = dict.fromkeys(note for row in rows for note in row.found.notes)
    return printable_lines([*lines, *(f"note: {note}" for note in notes)])


def _cells(row: SweepRow) -> tuple[str, ...]:
    found = row.found
    times = (found.seconds, found.compute, found.communication, found.exposed)
    return (row.value, str(found.devices), *map(brief, times), size_text(found.peak_bytes))


def _excess(row: SweepRow) -> str:
    if fits(row.found, row.machine):
        return ""
    return f"  does not fit into {size_text(row.machine.memory_limit)}"
