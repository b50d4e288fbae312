"""Reader of a trace's notes on a program's collectives, besides their times, and of its predictions.

"all-gather.3": {"kind": "all-gather", "bytes": 4194304, "groups": [[0, 1], [2, 3]], "exchanges": ["network"],
                 "independent_s": 0.004, "limited_s": 0.0, "producer": "fusion.2", "user": "dot.7"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launch.report.overlap.model import Site
from spmd.json_fields import JsonFields

_BYTES = (0, 1 << 62)
_SECONDS = (0.0, 1e9)
_DEVICES = 1 << 24
_PREDICTED = (-1e9, 1e9)
#: Executions of a collective in a step.
_TIMES = (0, 1 << 53)
_IN_FLIGHT_LIMIT = (1, 1 << 53)
#: Fields of a prediction that reports show for a step.
_OF_A_STEP = ("step_s", "compute_s", "slowed_s", "exposed_s")


def sites_json(sites: Mapping[str, Site]) -> dict[str, dict[str, Any]]:
    """Return the sites as JSON, without fields at their defaults."""
    return {name: _site_json(site) for name, site in sites.items()}


def _site_json(site: Site) -> dict[str, Any]:
    said = {
        "kind": site.kind,
        "bytes": site.bytes,
        "groups": [list(group) for group in site.groups],
        "pairs": [list(pair) for pair in site.pairs],
        "exchanges": list(site.exchanges),
        "blocking": site.blocking,
        "limited_s": site.limited,
        "held_s": site.in_flight_limited,
        "together": site.in_flight_limit if site.in_flight_limit > 1 else 0,
        "producer": site.producer,
        "user": site.user,
    }
    found = {name: value for name, value in said.items() if value}
    if site.independent is not None:
        found["independent_s"] = site.independent
    return found


def read_sites(other: JsonFields) -> dict[str, Site]:
    """Read the sites from a trace's otherData, whose error is raised for invalid ones."""
    listed = other.nested("collectives")
    return {name: _site(name, listed.nested(name)) for name in listed.names}


def read_predicted(other: JsonFields) -> Mapping[str, Any] | None:
    """Read the output of `spmd simulate --json`, with seconds by name under "kernels"; None without a prediction.

    The error is raised for what reports could not read.
    """
    found = other.pop("predicted") if other.has("predicted") else None
    if found is None:
        return None
    said = other.inside(found, "predicted")
    for name in _OF_A_STEP:
        said.number(name, _PREDICTED, 0.0)
    if said.has("kernels"):
        kernels = said.nested("kernels")
        for name in kernels.names:
            kernels.number(name, _PREDICTED)
    for number, one in enumerate(_list(said, "collectives")):
        _require_predicted(said.inside(one, f"collectives[{number}]"))
    return dict(found)


def _require_predicted(collective: JsonFields) -> None:
    collective.text("op")
    collective.integer("executions", _TIMES)
    for name in ("time_s", "exposed_s"):
        collective.number(name, _PREDICTED)
    if not isinstance(collective.pop("why"), str):
        raise collective.error(f"{collective.where}: why must be a string")


def _site(name: str, said: JsonFields) -> Site:
    pairs = _lists(said, "pairs")
    if any(len(pair) != 2 for pair in pairs):
        raise said.error(f"{said.where}: pairs must be of two devices each")
    independent = said.number("independent_s", _SECONDS) if said.has("independent_s") else None
    return Site(
        name,
        said.text("kind") if said.has("kind") else "",
        said.integer("bytes", _BYTES, 0),
        tuple(tuple(one) for one in _lists(said, "groups")),
        tuple((source, target) for source, target in pairs),
        tuple(str(one) for one in _list(said, "exchanges")),
        said.has("blocking") and bool(said.pop("blocking")),
        independent,
        said.number("limited_s", _SECONDS, 0.0),
        said.number("held_s", _SECONDS, 0.0),
        said.text("producer") if said.has("producer") else "",
        said.text("user") if said.has("user") else "",
        said.integer("together", _IN_FLIGHT_LIMIT, 1),
    )


def _lists(said: JsonFields, name: str) -> list[list[int]]:
    found = _list(said, name)
    for one in found:
        if not isinstance(one, list) or not all(map(_is_device, one)):
            raise said.error(f"{said.where}: {name} must be lists of device numbers")
    return found


def _is_device(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _DEVICES


def _list(said: JsonFields, name: str) -> list[Any]:
    found = said.pop(name) if said.has(name) else []
    if not isinstance(found, list):
        raise said.error(f"{said.where}: {name} must be a list")
    return found
