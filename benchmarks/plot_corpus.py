"""Draw a corpus report: memory and bytes on the wire of one device, ours over XLA CPU's.

python -m benchmarks.corpus_report CORPUS --json rows.json
python -m benchmarks.plot_corpus rows.json docs/images/corpus.png      (needs matplotlib)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

PANELS = (("memory", "arguments + temp bytes"), ("wire", "bytes on the wire"))


def draw(rows: list[dict[str, Any]], target: Path) -> None:
    """One horizontal bar per case and panel; 1.0 is XLA CPU on the same module and device count."""
    rows = sorted(rows, key=lambda row: row["name"], reverse=True)
    figure, axes = plt.subplots(1, 2, figsize=(11, 0.24 * len(rows) + 1.2), sharey=True)
    for axis, (key, title) in zip(axes, PANELS, strict=True):
        values = [row[key] for row in rows]
        colours = ["#2a7f62" if v is not None and v <= 1.0 else "#c26a3d" for v in values]
        axis.barh(
            [row["name"] for row in rows], [v or 0.0 for v in values], color=colours, height=0.7
        )
        for position, value in enumerate(values):
            label = "XLA sends none" if value is None else f"{value:.2f}"
            axis.text((value or 0.0) + 0.02, position, label, va="center", fontsize=7)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_xlim(0, 2.1)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_title(f"{title}, one device, ours / XLA CPU", fontsize=9)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, dpi=130)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
