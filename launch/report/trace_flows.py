"""Parts of a trace for collectives besides their slices: arrows between devices, and bytes in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from launch.report.overlap.model import Site

#: Largest group with arrows from each member to each; in larger ones they start at the last member.
_EACH_TO_EACH = 8
#: Microseconds before the end of a slice at which an arrow is drawn, so that it connects to this slice.
_INSIDE = 1e-3


def arrows(
    events: Iterable[Mapping[str, Any]], sites: Mapping[str, Site]
) -> Iterator[dict[str, Any]]:
    """Yield arrows of the collectives among ``events``: from the issue on a member to the completion on its peers."""
    meetings: dict[tuple[int, str, int], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    executions: dict[tuple[int, int, str], int] = defaultdict(int)
    async_slices = [one for one in events if one["ph"] == "X" and "landed" in one["args"]]
    for async_slice in sorted(async_slices, key=lambda one: float(one["ts"])):
        device, step, name = async_slice["pid"], async_slice["args"]["step"], async_slice["name"]
        if name in sites:
            meetings[step, name, executions[device, step, name]][device] = async_slice
            executions[device, step, name] += 1
    number = 0
    members = {one: sites[one].meetings() for one in dict.fromkeys(name for _, name, _ in meetings)}
    for (_, name, _), met in meetings.items():
        for target, landing in met.items():
            for source in _sources(sites[name], members[name], target, met):
                number += 1
                yield _end("s", number, met[source], met[source]["ts"])
                yield _end("f", number, landing, landing["ts"] + landing["dur"] - _INSIDE)


def _sources(
    site: Site,
    members: Mapping[int, tuple[int, ...]],
    target: int,
    met: Mapping[int, Mapping[str, Any]],
) -> list[int]:
    if site.pairs:
        return [one for one, to in site.pairs if to == target and one != target and one in met]
    others = [one for one in members.get(target, ()) if one != target and one in met]
    if len(others) < _EACH_TO_EACH:
        return others
    return [max(others, key=lambda one: float(met[one]["ts"]))]


def _end(phase: str, number: int, async_slice: Mapping[str, Any], at: float) -> dict[str, Any]:
    found = {
        "name": async_slice["name"],
        "cat": "flow",
        "ph": phase,
        "id": number,
        "ts": max(at, async_slice["ts"]),
        "pid": async_slice["pid"],
        "tid": async_slice["tid"],
    }
    # Bind the arrow to the slice that contains its end, instead of the next slice.
    return {**found, "bp": "e"} if phase == "f" else found


def counters(
    async_slices: Iterable[Mapping[str, Any]], sites: Mapping[str, Site]
) -> Iterator[dict[str, Any]]:
    """Yield the bytes of one device's results in flight, whenever they change."""
    changes: dict[float, int] = defaultdict(int)
    device = 0
    for async_slice in async_slices:
        device, site = async_slice["pid"], sites.get(async_slice["name"])
        size = async_slice["args"]["bytes"] if site is None else site.bytes
        changes[async_slice["ts"]] += size
        changes[async_slice["ts"] + async_slice["dur"]] -= size
    total = 0
    for at in sorted(changes):
        total += changes[at]
        yield {
            "name": "bytes in flight",
            "ph": "C",
            "pid": device,
            "ts": at,
            "args": {"bytes": total},
        }
