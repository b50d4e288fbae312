"""A description of one node and what joins nodes, put together: each is measured alone, and the other one stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange

_BETWEEN = "; what joins nodes: "


def with_network(
    node: MachineDescription, devices: int, network: Sequence[Exchange], source: str
) -> MachineDescription:
    """Return the description of nodes like ``node`` with ``devices`` devices each, joined by ``network`` instead of
    their present network.

    ``source``: origin of the figures of ``network``.
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
    """Return the source of the figures of the network between nodes; "" without a network."""
    if len(machine.exchanges) < 2:
        return ""
    _, *source = machine.source.split(_BETWEEN)
    return _BETWEEN.join(source) or f"as {machine.name} has it"


def with_network_of(node: MachineDescription, earlier: MachineDescription) -> MachineDescription:
    """Return ``node`` with the network of ``earlier``; unchanged if that has none."""
    source = network_source(earlier)
    if not source:
        return node
    inside, *network = earlier.exchanges
    return with_network(node, inside.devices, network, source)
