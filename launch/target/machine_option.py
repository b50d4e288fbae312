"""The machine that a compilation is for: the one that `--machine NAME|FILE` names, or the default."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from launch.cli.arguments import NETWORK
from launch.data.input_file import read_at_most
from launch.target.calibrated import machine_here
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named, with_own_name
from spmd.machine.reader import MAX_BYTES, MachineError, read_machine

#: Default machine of programs for GPUs.
GPUS = "dgx-h200"

#: A description file, and optional variations of the machine.
_FILE = re.compile(r"(.+\.json)(\{[^{}]*\})?")


def described(text: str) -> MachineDescription:
    """Return the machine of a name or file, possibly with variations. Raises MachineError if there is none."""
    named = _FILE.fullmatch(text)
    if named is None:
        if Path(text).is_file():
            raise MachineError(f"expected a machine's name or a description F.json, found {text}")
        return machine_named(text)
    path = Path(named.group(1))
    data = read_at_most(path, MAX_BYTES, MachineError)
    machine = with_own_name(read_machine(data, str(path)))
    return machine_named(machine.name + (named.group(2) or ""), (machine,))


def machine_for(
    text: str | None, node: int | None = None, backend: str = "cpu"
) -> MachineDescription:
    """Return the machine that ``text`` describes, else this one, or the default one for ``backend`` gpu.

    ``node``: number of devices of each node, if the devices are known to be on several; the machine's nodes get that
    size, unless ``text`` varies them. If the devices are on one node and ``text`` is None, the machine is that node.
    """
    if text is None and backend == "gpu":
        text = GPUS
    machine = machine_here() if text is None else described(text)
    if node is None:
        return _one_node(machine) if text is None else machine
    if text is not None and "node=" in text:
        return machine
    if len(machine.exchanges) < 2:
        machine = _with_network(machine)
    return machine.with_nodes(node)


def _one_node(machine: MachineDescription) -> MachineDescription:
    """Return the machine without the network that a calibration measured."""
    if len(machine.exchanges) < 2:
        return machine
    return replace(machine, name=f"a node of {machine.name}", exchanges=machine.exchanges[:1])


def _with_network(node: MachineDescription) -> MachineDescription:
    """Return nodes as described, joined by the network of another machine."""
    *_, network = machine_named(NETWORK).exchanges
    inside = node.exchanges[:1] or machine_named(NETWORK).exchanges[:1]
    size = inside[0].devices
    wide = replace(network, devices=size * (network.devices // size))
    return replace(node, name=f"{node.name} on {NETWORK}", exchanges=(*inside, wide))
