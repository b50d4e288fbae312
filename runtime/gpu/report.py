"""How a program's kernels are done on a GPU: in PTX, through a library, or by the host, which is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.gpu.step import Step, walk_steps
from runtime.gpu.steps.kernel_step import KernelStep


@dataclass(frozen=True)
class KernelForms:
    """Kernel calls in the program, each counted once however often a loop runs it.

    ``hosted``: (kernel kind, thunk) of each that the host computes.
    """

    ptx: int
    library: int
    hosted: tuple[tuple[str, str], ...]

    @staticmethod
    def of(plan: Sequence[Step]) -> KernelForms:
        steps = [step for step in walk_steps(plan) if isinstance(step, KernelStep)]
        counts = Counter(step.form for step in steps)
        hosted = tuple((type(s.kernel).__name__, s.name) for s in steps if s.form == "hosted")
        return KernelForms(counts["ptx"], counts["library"], hosted)

    def __str__(self) -> str:
        """One line, and one for each kind of kernel that the host computes."""
        lines = [
            f"kernels: {self.ptx} in PTX, {self.library} by libraries, {len(self.hosted)} by the host"
        ]
        for kind, count in Counter(kind for kind, _ in self.hosted).most_common():
            names = [name for own, name in self.hosted if own == kind]
            more = f" and {count - 3} more" if count > 3 else ""
            lines.append(f"  by the host: {count} {kind}: {', '.join(names[:3])}{more}")
        return "\n".join(lines)
