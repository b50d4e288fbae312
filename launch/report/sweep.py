"""A sweep for scripts and for readers: a row for each value of a field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectives.simulate.reasons import unit_of
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
    found = [row.found for row in rows]
    columns = {
        name: [row.value for row in rows],
        "devices": [str(one.devices) for one in found],
        "step": _times([one.seconds for one in found]),
        "compute": _times([one.compute for one in found]),
        "communication": _times([one.communication for one in found]),
        "exposed": _times([one.exposed for one in found]),
        "memory": [size_text(one.peak_bytes) for one in found],
    }
    lists = [[head, *cells] for head, cells in columns.items()]
    widths = [max(map(len, cells)) for cells in lists]
    table = zip(*lists, strict=True)
    lines = [f"{rows[0].found.module}, one row for each value of {name}"]
    for cells, excess in zip(table, ("", *map(_excess, rows)), strict=True):
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {'  '.join(padded)}{excess}")
    notes = dict.fromkeys(note for row in rows for note in row.found.notes)
    return printable_lines([*lines, *(f"note: {note}" for note in notes)])


def _times(seconds: Sequence[float]) -> list[str]:
    """Return times in one unit and with equally many decimals, the longest with four digits, so that they compare."""
    longest = max(map(abs, seconds))
    unit, size = unit_of(longest)
    decimals = max(0, 4 - len(str(int(longest / size))))
    return [f"{one / size:.{decimals}f} {unit}" for one in seconds]


def _excess(row: SweepRow) -> str:
    if fits(row.found, row.machine):
        return ""
    return f"  does not fit into {size_text(row.machine.memory_limit)}"
