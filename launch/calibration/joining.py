"""Combination of the description of a node with that of a network; calibration measures only one of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange

_BETWEEN = "; what joins nodes: "


def with_network(
    node: MachineDescription, devices: int, network: Sequence[Exchange], source: str
) -> MachineDescription:
    """Return the description of nodes like ``node``, with ``devices`` devices each, that ``network`` connects.

    It replaces the network of ``node``. source: text that says where the figures of ``network`` come from.
    """
    inside = replace(node, exchanges=node.exchanges[:1]).with_nodes(devices)
    of_node, *_ = node.source.split(_BETWEEN)
    machine = replace(
        inside,
        name="calibrated",
        source=f"{of_node}{_BETWEEN}{source}",
        exchanges=(*inside.exchanges, *network),
    )
    return replace(machine, name=f"calibrated-{machine.digest[:8]}")


def network_source(machine: MachineDescription) -> str:
    """Return the text that says where the figures of the network of ``machine`` come from; "" if it has no network."""
    if len(machine.exchanges) < 2:
        return ""
    _, *source = machine.source.split(_BETWEEN)
    return _BETWEEN.join(source) or f"as {machine.name} has it"


def with_network_of(node: MachineDescription, earlier: MachineDescription) -> MachineDescription:
    """Return ``node`` with the network of ``earlier``, or ``node`` itself if ``earlier`` has no network."""
    source = network_source(earlier)
    if not source:
        return node
    inside, *network = earlier.exchanges
    return with_network(node, inside.devices, network, source)
