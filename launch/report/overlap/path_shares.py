"""Composition of the critical path: its seconds by HLO opcode and source line."""

from __future__ import annotations

from collections import defaultdict

from launch.report.overlap.model import Instruction, OverlapReport
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PathShare:
    """All intervals of a critical path of one kind, opcode and source line.

    opcode: of the instructions; for a collective its kind.
    names: of the instructions, those with most seconds first.
    share: fraction of the path.
    """

    kind: str
    opcode: str
    source: str
    names: tuple[str, ...]
    seconds: float
    share: float


def path_shares(report: OverlapReport) -> tuple[PathShare, ...]:
    """Return the shares, the largest first."""
    total = sum(piece.seconds for piece in report.path)
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for piece in report.path:
        instruction = report.run.instructions.get(piece.name, Instruction(piece.name))
        site = report.run.sites.get(piece.name)
        opcode = instruction.opcode if site is None else site.kind
        found[piece.kind, opcode, instruction.source][piece.name] += piece.seconds
    shares = [
        PathShare(
            kind,
            opcode,
            source,
            tuple(sorted(names, key=lambda name: -names[name])),
            sum(names.values()),
            sum(names.values()) / total if total else 0.0,
        )
        for (kind, opcode, source), names in found.items()
    ]
    return tuple(sorted(shares, key=lambda one: -one.seconds))
