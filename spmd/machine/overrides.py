"""Overrides: a machine with another value of one field of its description, for questions of the kind "what if".

    links=0.5                         all links with half of the bandwidth, and the same latencies
    node=2                            nodes of two devices
    attained.memory=0.9               a field of the description; ``rates.bf16.matrix``, ``levels.L2.bytes``, ...
    levels.HBM3.bandwidth=2x          twice its value

A field's name is its path in the description (``write_machine``). An entry of a list is named by its ``name``, or by
its position if it has none. The new description is checked as if it were read from a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from spmd.machine.bounds import COUNT
from spmd.machine.description import MachineDescription, varied_name
from spmd.machine.reader import MachineError, read_machine, write_machine
from spmd.name_suggestions import did_you_mean

#: Smallest and largest factor of links.
_FACTORS = (1e-4, 1e4)
#: Fields of the entire description that a file may leave out, with the value that then holds.
_OPTIONAL = {"host_bandwidth": 0.0, "spread": 0.0}
#: The version of a description says nothing about the machine.
_VERSION = "format"
#: Largest number of names in an error.
_MOST = 6


def with_override(machine: MachineDescription, name: str, text: str) -> MachineDescription:
    """Return ``machine`` with the field ``name`` at the value ``text``, named ``MACHINE{NAME=TEXT}``.

    ``text`` is a number or, for a field of the description, a number followed by ``x``: a factor of the present value.
    The number for ``links`` is such a factor. Raises MachineError if there is no such field or value.
    """
    if name == "links":
        return machine.with_links(_link_factor(text))
    if name == "node":
        return machine.with_nodes(_node_size(text))
    return _with_field(machine, name, text)


def override_names(machine: MachineDescription) -> tuple[str, ...]:
    """Return the names of all fields of ``machine``."""
    return ("links", "node", *_fields(_described(machine)))


def _link_factor(text: str) -> float:
    factor = _number(text.removesuffix("x"), "links")
    low, high = _FACTORS
    if not low <= factor <= high:
        raise MachineError(f"links must be from {low:g} to {high:g} times as fast, found {text}")
    return factor


def _node_size(text: str) -> int:
    low, high = COUNT
    if not (text.isdecimal() and len(text) <= len(str(high)) and low <= int(text) <= high):
        raise MachineError(f"a node has from {low} to {high} devices, found {text}")
    return int(text)


def _with_field(machine: MachineDescription, name: str, text: str) -> MachineDescription:
    description = _described(machine)
    numbers = dict(_fields(description))
    if name not in numbers:
        raise MachineError(_unknown(machine, name))
    holder, key = numbers[name]
    present = holder[key]
    value = _number(text.removesuffix("x"), name) * (present if text.endswith("x") else 1)
    holder[key] = round(value) if isinstance(present, int) and text.endswith("x") else value
    stated = {
        field: value
        for field, value in description.items()
        if field not in _OPTIONAL or value != _OPTIONAL[field]
    }
    found = read_machine(json.dumps(stated).encode(), f"{name}={text}")
    return replace(found, name=varied_name(machine.name, f"{name}={text}"))


def _described(machine: MachineDescription) -> dict[str, Any]:
    """Return the fields of ``machine``, with a name that a file may have."""
    found: dict[str, Any] = json.loads(write_machine(replace(machine, name="varied")))
    return {**_OPTIONAL, **found}


def _fields(description: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the numbers in ``description`` by name, each as the object or list that holds it and its key there."""
    return {name: number for name, number in _numbers(description, "") if name != _VERSION}


def _numbers(holder: Any, prefix: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    entries = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for key, entry in entries:
        named = isinstance(holder, list) and isinstance(entry, dict) and "name" in entry
        name = f"{prefix}{entry['name'] if named else key}"
        if isinstance(entry, (dict, list)):
            yield from _numbers(entry, f"{name}.")
        elif isinstance(entry, (int, float)):
            yield name, (holder, key)


def _number(text: str, name: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise MachineError(f"{name} must be a number, found {text!r}")


def _unknown(machine: MachineDescription, name: str) -> str:
    names = override_names(machine)
    similar = [one for one in names if name in one.split(".")]
    meant = "" if similar else did_you_mean(name, names)
    if not meant:
        listed = similar or names
        more = ", .." if len(listed) > _MOST else ""
        meant = f"; there are {', '.join(listed[:_MOST])}{more}"
    return f"{machine.name} has no field {name!r}{meant}"
