"""Draw the times of a node's collectives: one field a kind, one line for each who takes part, 1 KB to 64 MB.

python -m benchmarks.communication.node_collectives --jax PYTHON --results FOLDER
python -m benchmarks.communication.plot_node_collectives FOLDER/node_collectives.json collectives.png    (needs
matplotlib)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

#: Who is drawn: the least of these columns, as what, in which colour and line.
LINES = (
    (("ours",), "ours, ranks", "#2a7f62", "-"),
    (("process",), "ours, one process", "#2a7f62", "--"),
    (("MPI", "in place"), "MPI", "#c26a3d", "-"),
    (("jaxlib",), "jaxlib, one process", "#4a6fa5", "--"),
    (("gloo",), "gloo", "#8a8a8a", "-"),
    (("limit",), "a copy of its bytes", "#c8c8c8", ":"),
)


def draw(run: dict[str, Any], target: Path) -> None:
    """Microseconds over bytes, both logarithmic."""
    kinds = list(dict.fromkeys(row["kind"] for row in run["rows"]))
    size = (3 * len(kinds), 3.2)
    figure, ((*axes,),) = plt.subplots(1, len(kinds), figsize=size, sharey=True, squeeze=False)
    for axis, kind in zip(axes, kinds, strict=True):
        rows = [row for row in run["rows"] if row["kind"] == kind]
        for columns, name, colour, style in LINES:
            points = [
                (row["bytes"] / 1024, 1e6 * min(times))
                for row in rows
                if (times := [row["seconds"][c] for c in columns if c in row["seconds"]])
            ]
            axis.plot(
                *zip(*points, strict=True) if points else ([], []), style, color=colour, label=name
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(kind, fontsize=9)
        axis.set_xlabel("KB", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("us, least of all rounds", fontsize=8)
    axes[0].legend(fontsize=6, frameon=False)
    where = run["environment"]
    title = (
        f"{run['ranks']} ranks or devices, {run['dtype']}, {where['cores']} cores of {where['cpu']}"
    )
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(target, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", default="f32")
    options = parser.parse_args()
    runs = json.loads(options.report.read_text())["runs"]
    wanted = (options.ranks, options.dtype)
    (run,) = (run for run in runs if (run["ranks"], run["dtype"]) == wanted)
    draw(run, options.target)


if __name__ == "__main__":
    main()
