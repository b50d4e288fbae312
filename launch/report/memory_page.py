"""A memory timeline as one self-contained HTML page: no network, no files beside it.

All data stands in the page as one JSON object; the script draws on a canvas and writes names as text, never as markup.
"""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from launch.report.memory_colors import COLORS
from launch.report.memory_timeline import Block, BlockKind, MemoryTimeline


def memory_page(timeline: MemoryTimeline) -> str:
    """Return the page's text."""
    # `</script>` or `<!--` inside a string would end the script.
    data = json.dumps(_as_json(timeline), separators=(",", ":")).replace("<", "\\u003c")
    page = (resources.files("launch.report") / "memory_page.html").read_text(encoding="utf-8")
    filled = page.replace("@TITLE@", html.escape(timeline.title))
    # Data last: it may hold any text.
    return filled.replace("@SUBTITLE@", html.escape(timeline.subtitle)).replace("@DATA@", data)


def _as_json(timeline: MemoryTimeline) -> dict[str, Any]:
    kinds = list(BlockKind)
    return {
        "kinds": [{"name": kind.value, "color": COLORS[kind]} for kind in kinds],
        "blocks": [_block(block, kinds) for block in timeline.blocks],
        "live": timeline.live.tolist(),
        "total": timeline.total,
        "peak": timeline.peak,
        "largest": [
            [block.name, block.shape, block.size, block.op_name, block.source]
            for block in timeline.largest
        ],
    }


def _block(block: Block, kinds: list[BlockKind]) -> list[Any]:
    extent = (block.offset, block.size, block.start, block.end)
    said = (block.name, block.shape, block.opcode, block.op_name, block.source)
    return [kinds.index(block.kind), *extent, *said]
