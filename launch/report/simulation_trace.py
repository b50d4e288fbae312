"""A simulated step as a trace for Perfetto and chrome://tracing: a row for the compute of a device, some for each link.

Transfers that share a link overlap; events of one row must not, so that a link has as many rows as transfers at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collectives.simulate.result import Simulation
from collectives.simulate.timeline import Row, Slice


def simulation_trace(found: Simulation) -> dict[str, Any]:
    """Return the trace in the JSON object form, with times in microseconds from the step's beginning."""
    rows = _rows(found.slices)
    events = [_metadata("process_name", 0, f"device {found.device}")]
    for number, (name, slices) in enumerate(rows):
        events.append(_metadata("thread_name", number, name))
        events += [_event(one, number) for one in slices]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"module": found.module, "devices": found.devices, "alike": found.class_size},
    }


def _rows(slices: Iterable[Slice]) -> list[tuple[str, list[Slice]]]:
    """Compute (and standing still) first, then the links, each with its transfers."""
    compute: list[Slice] = []
    links: dict[str, list[Slice]] = {}
    for one in slices:
        if one.row is not Row.COLLECTIVE:
            compute.append(one)
            continue
        for link in one.links or ("no link",):
            links.setdefault(link, []).append(one)
    rows = [("compute", compute)]
    for link, transfers in links.items():
        for number, track in enumerate(_lanes(transfers)):
            rows.append((link if not number else f"{link} ({number + 1})", track))
    return rows


def _lanes(transfers: Iterable[Slice]) -> list[list[Slice]]:
    """Distribute transfers over the fewest rows without overlaps; ``transfers`` are in the order of their begins."""
    lanes: list[list[Slice]] = []
    for one in transfers:
        free = next((track for track in lanes if track[-1].end <= one.start), None)
        if free is None:
            lanes.append([one])
        else:
            free.append(one)
    return lanes


def _event(one: Slice, row: int) -> dict[str, Any]:
    name = f"wait for {one.name}" if one.row is Row.WAIT else one.name
    return {
        "name": name,
        "cat": one.row.value,
        "ph": "X",
        "ts": 1e6 * one.start,
        "dur": 1e6 * (one.end - one.start),
        "pid": 0,
        "tid": row,
    }


def _metadata(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 0, "tid": row, "args": {"name": name}}
