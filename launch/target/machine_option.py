"""`--machine NAME|FILE`: which machine a compilation is for, and what it is for where nobody says.

`--durations FILE`: what was measured there.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from launch.data.input_file import read_at_most
from launch.target.calibrated import machine_here
from spmd.machine.description import MachineDescription
from spmd.machine.named import introduce, machine_named
from spmd.machine.reader import MAX_BYTES, MachineError, read_machine

#: Whose GPUs are assumed where GPUs compute, and nobody says which.
GPUS = "dgx-h200"

#: Whose network joins nodes of machines of which only the inside was measured.
NETWORK = "tcp-cluster"

#: A file of a description, and what to vary of it.
_FILE = re.compile(r"(.+\.json)(\{[^{}]*\})?")


def add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME|F.json",
        help="compile for this machine: cpu-avx512, tcp-cluster, ..., or a description that `spmd calibrate -o` wrote; "
        "M{node=2} has nodes of two devices, M{links=0.25} links that carry a quarter (default: this one as `spmd "
        f"calibrate` found it; between nodes of an MPI job, if it found nothing of that, the network of {NETWORK})",
    )
    parser.add_argument(
        "--durations",
        type=Path,
        metavar="F.json",
        help="order collectives and work by times that were measured: a trace that `spmd profile --trace` has written "
        "of the same module, options and machine, or {instruction: seconds}",
    )


def described(text: str) -> MachineDescription:
    """A machine by name or file, varied or not. MachineError where there is none."""
    named = _FILE.fullmatch(text)
    if named is None:
        if Path(text).is_file():
            raise MachineError(f"{text}: the name of a description's file ends in .json")
        return machine_named(text)
    path = Path(named.group(1))
    data = read_at_most(path, MAX_BYTES, MachineError)
    machine = introduce(read_machine(data, str(path)))
    return machine_named(machine.name + (named.group(2) or ""))


def machine_for(
    text: str | None, node: int | None = None, backend: str = "cpu"
) -> MachineDescription:
    """The machine that ``text`` describes, else the one that is here, or the one that is assumed for ``backend`` gpu.

    node: devices of each node, where the devices are known to lie on several; the machine's nodes are taken to be of
    that size, unless ``text`` varies them. Where they lie on one, and nobody says otherwise, it is all there is.
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
    """Without what a calibration found between nodes."""
    if len(machine.exchanges) < 2:
        return machine
    return replace(machine, name=f"a node of {machine.name}", exchanges=machine.exchanges[:1])


def _with_network(node: MachineDescription) -> MachineDescription:
    """Nodes as described, joined by the network of another machine."""
    *_, network = machine_named(NETWORK).exchanges
    inside = node.exchanges[:1] or machine_named(NETWORK).exchanges[:1]
    size = inside[0].devices
    wide = replace(network, devices=size * (network.devices // size))
    return replace(node, name=f"{node.name} on {NETWORK}", exchanges=(*inside, wide))
