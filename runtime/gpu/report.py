"""Report of a program's kernels on a GPU: in PTX, through a library, or on the host, with names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runtime.gpu.step import Step, traverse_steps
from runtime.gpu.steps.kernel_step import KernelStep
from runtime.gpu.steps.while_loop import HostedLoopStep
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
    def of(plan: Sequence[Step]) -> KernelReport:
        steps = [step for step in traverse_steps(plan) if isinstance(step, KernelStep)]
        counts = Counter(step.implementation for step in steps)
        hosted = [(type(s.kernel).__name__, s.name) for s in steps if s.implementation == "hosted"]
        hosted += [
            ("scalar loop", s.name) for s in traverse_steps(plan) if isinstance(s, HostedLoopStep)
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
