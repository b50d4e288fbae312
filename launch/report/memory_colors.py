"""One colour for each kind of block, in all pictures of memory; distinct to most kinds of eyes, too (Okabe and Ito)."""

from __future__ import annotations

from launch.report.memory_timeline import BlockKind

COLORS = {
    BlockKind.PARAMETER: "#b9c3cf",
    BlockKind.CONSTANT: "#999999",
    BlockKind.OUTPUT: "#009e73",
    BlockKind.TEMPORARY: "#56b4e9",
    BlockKind.COLLECTIVE: "#e69f00",
    BlockKind.SCRATCH: "#cc79a7",
}
