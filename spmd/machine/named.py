"""Machine descriptions by name: those of the package, and those that a driver introduces.

Each also exists with other links and other nodes: ``dgx-h100{links=0.25}`` is a DGX H100 with a quarter of the link
bandwidth, and ``tcp-cluster{node=2}`` a cluster of nodes of two devices.
"""

from __future__ import annotations

import re
from importlib.resources import files

from spmd.machine.description import MachineDescription
from spmd.machine.reader import MachineError, read_machine
from spmd.near_names import did_you_mean
from spmd.registry import Registry

#: Default machine of a compilation. It is the same everywhere, so that two compilations of one module give one program.
DEFAULT = "cpu-avx512"
SHIPPED = ("cpu-avx512", "dgx-h100", "dgx-h200", "tcp-cluster")

#: One variation or both, links first.
_VARIED = re.compile(
    r"([^{}]+)\{(?=[ln])(?:links=([0-9]{1,6}(?:\.[0-9]{1,6})?)(?:,(?=n)|(?=\})))?(?:node=([0-9]{1,6}))?\}"
)
#: Smallest and largest factor of links.
_FACTORS = (1e-4, 1e4)

#: Every description that has been read or introduced, by name.
_MACHINES: Registry[str, MachineDescription] = Registry("machine description")


def machine_named(name: str = DEFAULT) -> MachineDescription:
    """Return a shipped or introduced description. Raises MachineError with a list of names if the name is unknown."""
    known = _known(name)
    if known is None and (varied := _VARIED.fullmatch(name)) is not None:
        return _with(machine_named(varied.group(1)), varied.group(2), varied.group(3))
    if known is None:
        raise MachineError(_unknown(name))
    return known


def _unknown(name: str) -> str:
    names = sorted({*SHIPPED, *_MACHINES})
    base = name.partition("{")[0]
    if base in names:
        return f"no machine is named {name!r}: it is varied as {base}{{links=FACTOR}}, {{node=DEVICES}} or both"
    meant = did_you_mean(base, names) or ";"
    return (
        f"no machine is named {name!r}{meant} there are {', '.join(names)}, "
        "each also as NAME{links=FACTOR} or NAME{node=DEVICES}"
    )


def _with(machine: MachineDescription, links: str | None, node: str | None) -> MachineDescription:
    if links is not None:
        machine = machine.with_links(_factor(links))
    if node is not None:
        if int(node) < 1:
            raise MachineError(f"a node has at least one device, found {node}")
        machine = machine.with_nodes(int(node))
    return machine


def introduce(machine: MachineDescription) -> MachineDescription:
    """Make ``machine`` available to passes by its name. Raises MachineError if another machine with a different digest
    has the name.
    """
    known = _known(machine.name)
    if known is None:
        _MACHINES.add(machine.name, machine)
    elif known.digest != machine.digest:
        raise MachineError(
            f"there are two machines named {machine.name!r}, with digests {known.digest} and {machine.digest}"
        )
    return machine


def _factor(text: str) -> float:
    factor = float(text)
    low, high = _FACTORS
    if not low <= factor <= high:
        raise MachineError(f"links must be from {low:g} to {high:g} times as fast, found {text}")
    return factor


def _known(name: str) -> MachineDescription | None:
    if name in SHIPPED and name not in _MACHINES:
        path = files("spmd.machine").joinpath("data", f"{name}.json")
        _MACHINES.add(name, read_machine(path.read_bytes(), path.name))
    return _MACHINES.get(name)
