"""Machine descriptions by name: those of the package, and those that a caller has read.

Each also exists with other links and other nodes: ``dgx-h100{links=0.25}`` is a DGX H100 with a quarter of the link
bandwidth, and ``tcp-cluster{node=2}`` a cluster of nodes of two devices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from spmd.machine.description import MachineDescription
from spmd.machine.overrides import with_override
from spmd.machine.reader import MachineError, read_machine
from spmd.name_suggestions import did_you_mean

#: Default machine of a compilation. It is the same everywhere, so that two compilations of one module give one program.
DEFAULT = "cpu-avx512"
SHIPPED = (
    *("cpu-avx512", "dgx-a100", "dgx-b200", "dgx-h100", "dgx-h200", "gb200-nvl72", "tcp-cluster"),
)

#: One variation or both, links first.
_VARIED = re.compile(
    r"([^{}]+)\{(?=[ln])(?:links=([0-9]{1,6}(?:\.[0-9]{1,6})?)(?:,(?=n)|(?=\})))?(?:node=([0-9]{1,6}))?\}"
)


def machine_named(
    name: str = DEFAULT, known: Sequence[MachineDescription] = ()
) -> MachineDescription:
    """Return the description of this name: a shipped one, one of ``known``, or a varied one.

    Raises MachineError with a list of names if the name is unknown.
    """
    found = next((machine for machine in known if machine.name == name), None)
    if found is not None:
        return found
    if name in SHIPPED:
        return _shipped(name)
    if (varied := _VARIED.fullmatch(name)) is not None:
        return _with(machine_named(varied.group(1), known), varied.group(2), varied.group(3))
    raise MachineError(_unknown(name, known))


def with_own_name(machine: MachineDescription) -> MachineDescription:
    """Return ``machine``. Raises MachineError if a shipped machine with a different digest has its name."""
    if machine.name in SHIPPED and (shipped := _shipped(machine.name)).digest != machine.digest:
        raise MachineError(
            f"there are two machines named {machine.name!r}, with digests {shipped.digest} and {machine.digest}"
        )
    return machine


def _unknown(name: str, known: Sequence[MachineDescription]) -> str:
    names = sorted({*SHIPPED, *(machine.name for machine in known)})
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
        machine = with_override(machine, "links", links)
    return machine if node is None else with_override(machine, "node", node)


@cache
def _shipped(name: str) -> MachineDescription:
    path = files("spmd.machine").joinpath("data", f"{name}.json")
    return read_machine(path.read_bytes(), path.name)
