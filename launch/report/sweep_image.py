"""A sweep as an image, with matplotlib (the ``plot`` extra)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from launch.report.plot import require_matplotlib
from launch.report.sweep import SweepRow

_GIGABYTE = 1e9
#: Parts of a step from below, with their colors.
_PARTS = (("compute", "#56b4e9"), ("slowed", "#e69f00"), ("exposed", "#d55e00"))


def sweep_image(name: str, rows: Sequence[SweepRow], image_format: str) -> bytes:
    """Return a file of the format ``image_format`` (svg or png): the parts of the step and the peak memory at each
    value.

    Raises UnsupportedError if matplotlib is not installed.
    """
    require_matplotlib("a plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), dpi=130, layout="constrained")
    steps, memory = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ticks = range(len(rows))
    below = [0.0] * len(rows)
    for part, color in _PARTS:
        heights = [1e3 * getattr(row.found, part) for row in rows]
        steps.bar(ticks, heights, 0.6, bottom=below, color=color, label=part)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    steps.set_ylabel("step, ms")
    steps.set_title(rows[0].found.module.replace("$", r"\$"), fontsize=10)
    steps.legend(fontsize=8)
    memory.bar(ticks, [row.found.peak_bytes / _GIGABYTE for row in rows], 0.6, color="#999999")
    limits = [row.machine.memory_limit / _GIGABYTE for row in rows]
    memory.hlines(
        limits, [n - 0.4 for n in ticks], [n + 0.4 for n in ticks], color="#d62728", label="limit"
    )
    memory.set_ylabel("peak memory, GB")
    memory.legend(fontsize=8)
    memory.set_xticks(list(ticks), [row.value for row in rows])
    memory.set_xlabel(name)
    for axes in (steps, memory):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    return _file(figure, image_format)


def _file(figure: Any, image_format: str) -> bytes:
    """Return the figure's file, the same for the same figure."""
    stream = io.BytesIO()
    metadata = {"Date": None} if image_format == "svg" else {"Software": None}
    figure.savefig(stream, format=image_format, metadata=metadata)
    return stream.getvalue()
