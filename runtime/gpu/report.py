"""Report of how many kernels of a program run as PTX, through a library, or on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runtime.gpu.command import Command, traverse_commands
from runtime.gpu.commands.kernel_command import KernelCommand
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class KernelReport:
    """Numbers of kernel calls in a program by implementation. A call in a loop counts once.

    ptx: calls of PTX kernels. library: calls of library functions. hosted: (kernel class, thunk name) of each call that
    the host computes.
    """

    ptx: int
    library: int
    hosted: tuple[tuple[str, str], ...]

    @staticmethod
    def of(plan: Sequence[Command]) -> KernelReport:
        """Return the report on the commands of ``plan``, including nested ones."""
        commands = [
            command for command in traverse_commands(plan) if isinstance(command, KernelCommand)
        ]
        counts = Counter(command.implementation for command in commands)
        hosted = [
            (type(s.kernel).__name__, s.name) for s in commands if s.implementation == "hosted"
        ]
        return KernelReport(counts["ptx"], counts["library"], tuple(hosted))

    @property
    def hosted_kinds(self) -> list[tuple[str, list[str]]]:
        """Kernel classes that the host computes, each with the names of its thunks, the most frequent class first."""
        counts = Counter(kind for kind, _ in self.hosted)
        return [
            (kind, [name for own, name in self.hosted if own == kind])
            for kind, _ in counts.most_common()
        ]

    def as_json(self) -> dict[str, object]:
        """Return the report as an object for JSON. ``hosted`` has the thunk names by kernel class."""
        return {"ptx": self.ptx, "library": self.library, "hosted": dict(self.hosted_kinds)}

    def __str__(self) -> str:
        """Return the counts by implementation, and up to three thunk names of each class that the host computes."""
        lines = [
            f"{self.ptx} kernels in PTX, {self.library} by libraries, {len(self.hosted)} by the host"
        ]
        for kind, names in self.hosted_kinds:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            lines.append(f"{len(names)} {kind} ({', '.join(names[:3])}{more})")
        return ": ".join([lines[0], ", ".join(lines[1:])]) if self.hosted else lines[0]
