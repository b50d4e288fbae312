"""A memory timeline as a PNG image, with matplotlib (the ``plot`` extra)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from launch.report.memory_colors import COLORS
from launch.report.memory_timeline import Block, BlockKind, MemoryTimeline
from launch.report.plot import require_matplotlib

_MEGABYTE = 1e6
#: Number of the largest buffers at the peak that the image names where it has space.
_NAMED = 12
_STILL = (BlockKind.PARAMETER, BlockKind.CONSTANT)


def memory_image(timeline: MemoryTimeline) -> bytes:
    """Return a PNG file. Raises UnsupportedError if matplotlib is not installed."""
    require_matplotlib("a PNG", "an .html file needs nothing")
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(12, 7.5), dpi=130, layout="constrained")
    offset_axes, live_axes = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    used = [kind for kind in BlockKind if any(b.kind is kind for b in timeline.blocks)]
    for kind in used:
        corners = _corners([b for b in timeline.blocks if b.kind is kind])
        offset_axes.add_collection(
            PolyCollection(corners, facecolors=COLORS[kind], edgecolors="#00000030", linewidths=0.2)
        )
    offset_axes.set_xlim(0, timeline.end + 1)
    offset_axes.set_ylim(_lowest(timeline) / _MEGABYTE, timeline.total / _MEGABYTE)
    offset_axes.set_ylabel("offset, MB")
    offset_axes.legend(
        handles=[Patch(color=COLORS[kind], label=kind.value) for kind in used],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=len(used),
        fontsize=8,
        frameon=False,
    )
    offset_axes.set_title(_plain(f"{timeline.title}\n{timeline.subtitle}"), fontsize=10)
    _name_largest(offset_axes, timeline)
    live_axes.fill_between(
        np.arange(timeline.end + 1), timeline.live / _MEGABYTE, step="post", color="#56b4e980"
    )
    live_axes.set_ylim(0, timeline.total / _MEGABYTE * 1.05)
    live_axes.set_ylabel("live, MB")
    live_axes.set_xlabel("position in the schedule")
    for axis in (offset_axes, live_axes):
        axis.axvline(timeline.peak + 0.5, color="#d62728", linewidth=0.9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    live_axes.annotate(
        f"peak {timeline.peak_bytes / _MEGABYTE:,.3g} MB",
        (timeline.peak + 0.5, timeline.peak_bytes / _MEGABYTE),
        xytext=(4, -10),
        textcoords="offset points",
        fontsize=8,
        color="#d62728",
    )
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _corners(blocks: list[Block]) -> np.ndarray:
    """Return the blocks' corners, [blocks, 4, 2], in positions and megabytes."""
    left = np.array([b.start for b in blocks], float)
    right = np.array([b.end + 1 for b in blocks], float)
    low = np.array([b.offset for b in blocks], float) / _MEGABYTE
    high = np.array([b.offset + b.size for b in blocks], float) / _MEGABYTE
    x = np.stack([left, right, right, left], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    return np.stack([x, y], axis=2)


def _lowest(timeline: MemoryTimeline) -> float:
    """Return the offset at which the picture begins. Constant blocks have the lowest offsets, and get a sixth of the
    height at most.
    """
    still = max((b.offset + b.size for b in timeline.blocks if b.kind in _STILL), default=0)
    return max(0.0, still - (timeline.total - still) / 5)


def _name_largest(axis: Any, timeline: MemoryTimeline) -> None:
    """Write names into the blocks that are large enough for them."""
    for block in timeline.largest[:_NAMED]:
        if block.size < timeline.total / 60 or block.end - block.start < timeline.end / 12:
            continue
        axis.text(
            (block.start + block.end + 1) / 2,
            (block.offset + block.size / 2) / _MEGABYTE,
            _plain(f"{block.name} {block.shape}"),
            ha="center",
            va="center",
            fontsize=6,
            clip_on=True,
        )


def _plain(text: str) -> str:
    """Escape dollars, between which matplotlib reads formulas."""
    return text.replace("$", r"\$")
