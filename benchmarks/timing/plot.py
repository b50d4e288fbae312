"""Draw step times: one bar a case, ours over XLA's, with the limit as a mark.

python -m benchmarks.step_time CASES --peer '...' --results FOLDER
python -m benchmarks.timing.plot FOLDER/step_time.json steps.png      (needs matplotlib)
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

FASTER, SLOWER = "#2a7f62", "#c26a3d"


def draw(report: dict[str, Any], target: Path) -> None:
    """1.0 is XLA CPU on the same cores; the scale is logarithmic, so that twice and half look alike."""
    rows = [row for row in report["rows"] if not math.isnan(row["ratio"])]
    rows.sort(key=lambda row: row["ratio"], reverse=True)
    figure, axis = plt.subplots(figsize=(8, 0.26 * len(rows) + 1.3))
    ratios = [row["ratio"] for row in rows]
    left = min(ratios) / 3  # room for the figures in the bars
    axis.barh(
        [row["case"] for row in rows],
        ratios,
        color=[FASTER if ratio <= 1 else SLOWER for ratio in ratios],
        height=0.7,
    )
    for position, row in enumerate(rows):
        axis.plot(row["limit_ms"] / row["xla_ms"], position, "k|", markersize=9)
        axis.plot(row["xla_one_device_ms"] / row["xla_ms"], position, "k.", markersize=4)
        axis.text(
            left * 1.03,
            position,
            f"{row['ratio']:.2f}  ({row['step_ms']:.2f} ms)",
            va="center",
            color="white",
            fontsize=7,
        )
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_xlim(left=left)
    for ticks in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        ticks(lambda value, _: f"{value:g}")
    axis.set_xlabel(
        "step time over XLA CPU's on the same cores (log scale); | the machine's limit, · XLA's one device"
    )
    where = report["environment"]
    axis.set_title(f"{where['cores']} cores of {where['cpu']}, {report['engine']}", fontsize=9)
    axis.tick_params(labelsize=7, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, dpi=130)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
