"""Network namespaces that stand for hosts, named by the process that made them: so leftovers are known as such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.two_hosts.commands import attempt, command
from collectives.communicator.liveness.process_state import ProcessId

_NAME = re.compile(r"spmd-(\d+)-(\d+)-(\d+)-host\d+")


@dataclass(frozen=True)
class Host:
    """``number``: of the host; also what SPMD_NODE_ID tells its ranks apart by. ``namespace``: its name."""

    number: int
    namespace: str

    def inside(self, *words: str) -> tuple[str, ...]:
        """The line that runs a command on this host."""
        return ("ip", "netns", "exec", self.namespace, *words)


@contextmanager
def hosts(count: int) -> Iterator[tuple[Host, ...]]:
    """New hosts, each with nothing but its own loopback device; gone at the end, with their devices."""
    remove_leftovers()
    prefix = "-".join(("spmd", *map(str, ProcessId.own())))
    found: list[Host] = []
    try:
        for n in range(count):
            name = f"{prefix}-host{n}"
            command("ip", "netns", "add", name)
            found.append(Host(n, name))
            command("ip", "-n", name, "link", "set", "lo", "up")
        yield tuple(found)
    finally:
        for host in found:
            attempt("ip", "netns", "delete", host.namespace)


def remove_leftovers() -> None:
    """Hosts whose maker was killed before it could remove them."""
    for line in command("ip", "netns", "list").splitlines():
        name = line.partition(" ")[0]
        made = _NAME.fullmatch(name)
        if made is not None and ProcessId(*map(int, made.groups())).is_dead():
            attempt("ip", "netns", "delete", name)
