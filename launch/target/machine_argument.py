"""Arguments `--machine NAME|FILE`, the machine that a compilation is for, and `--durations FILE`, what was measured
there."""

from __future__ import annotations

import argparse
from pathlib import Path

#: Machine with the network that joins nodes of a machine whose network was not measured.
NETWORK = "tcp-cluster"


def add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME|F.json",
        help="compile for this machine: cpu-avx512, tcp-cluster, ..., or a description that `spmd calibrate -o` wrote; "
        "M{node=2} has nodes of two devices, M{links=0.25} links that carry a quarter (default: this one as `spmd "
        f"calibrate` found it; between nodes of an MPI job, if it found nothing of that, the network of {NETWORK})",
    )
    parser.add_argument(
        "--durations",
        type=Path,
        metavar="F.json",
        help="order collectives and work by times that were measured: a trace that `spmd profile --trace` has written "
        "of the same module, options and machine, or {instruction: seconds}",
    )
