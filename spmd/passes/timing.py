"""Time of a pipeline, by pass."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass
from spmd.passes.pipeline import Application


@dataclass
class PassTime:
    """Time of one pass. ``applications``: times that it ran; ``changed``: those that changed something; ``seconds`` of
    all.
    """

    applications: int = 0
    changed: int = 0
    seconds: float = 0.0


class PassTimes:
    """Adds up what passes took, by name and options. Give ``add`` to the pipeline as what it calls after each."""

    def __init__(self) -> None:
        self.by_pass: dict[str, PassTime] = {}

    def add(self, done: Application) -> None:
        row = self.by_pass.setdefault(str(done.step), PassTime())
        row.applications += 1
        row.changed += done.changed
        row.seconds += done.seconds

    def __str__(self) -> str:
        """Return a table, the longest time first."""
        rows = sorted(self.by_pass.items(), key=lambda item: -item[1].seconds)
        lines = [f"{'pass':44} {'runs':>5} {'changed':>7} {'seconds':>9}"]
        lines += [
            f"{name:44} {row.applications:5} {row.changed:7} {row.seconds:9.3f}"
            for name, row in rows
        ]
        total = sum(row.seconds for row in self.by_pass.values())
        return "\n".join([*lines, f"{'total':44} {'':5} {'':7} {total:9.3f}"])
