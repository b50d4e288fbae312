"""Report of a program's kernels on a GPU: in PTX, through a library, or on the host, with names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runtime.gpu.command import Command, traverse_commands
from runtime.gpu.commands.kernel_command import KernelCommand
from runtime.gpu.commands.while_loop import HostedLoopCommand
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class KernelReport:
    """Numbers of kernel calls by implementation. A call in a loop counts once.

    ``hosted``: (kernel kind, thunk) of each that the host computes.
    """

    ptx: int
    library: int
    hosted: tuple[tuple[str, str], ...]

    @staticmethod
    def of(plan: Sequence[Command]) -> KernelReport:
        commands = [
            command for command in traverse_commands(plan) if isinstance(command, KernelCommand)
        ]
        counts = Counter(command.implementation for command in commands)
        hosted = [
            (type(s.kernel).__name__, s.name) for s in commands if s.implementation == "hosted"
        ]
        hosted += [
            ("scalar loop", s.name)
            for s in traverse_commands(plan)
            if isinstance(s, HostedLoopCommand)
        ]
        return KernelReport(counts["ptx"], counts["library"], tuple(hosted))

    @property
    def hosted_kinds(self) -> list[tuple[str, list[str]]]:
        """The kinds that the host computes, with their thunks, most frequent first."""
        counts = Counter(kind for kind, _ in self.hosted)
        return [
            (kind, [name for own, name in self.hosted if own == kind])
            for kind, _ in counts.most_common()
        ]

    def as_json(self) -> dict[str, object]:
        return {"ptx": self.ptx, "library": self.library, "hosted": dict(self.hosted_kinds)}

    def __str__(self) -> str:
        """Return the counts by implementation, and some names for each kind that the host computes."""
        lines = [
            f"{self.ptx} kernels in PTX, {self.library} by libraries, {len(self.hosted)} by the host"
        ]
        for kind, names in self.hosted_kinds:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            lines.append(f"{len(names)} {kind} ({', '.join(names[:3])}{more})")
        return ": ".join([lines[0], ", ".join(lines[1:])]) if self.hosted else lines[0]
