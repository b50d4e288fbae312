"""`--memory-plot F.png|F.html`: a picture of a device's memory over the schedule."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from launch.cli.output_path import path_ending_in
from launch.report.memory_image import memory_image
from launch.report.memory_page import memory_page
from launch.report.memory_timeline import memory_timeline
from runtime.executable import Executable
from spmd.output_file import write_file

FORMATS = (".html", ".png")


def add_memory_plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory-plot",
        type=partial(path_ending_in, FORMATS),
        metavar="F.html|F.png",
        help="draw the offsets of all values in a device's memory over the schedule: a self-contained page, or an "
        "image (with the plot extra)",
    )


def write_memory_plot(executable: Executable, target: Path) -> None:
    timeline = memory_timeline(executable)
    if target.suffix == ".png":
        write_file(target, memory_image(timeline))
    else:
        write_file(target, memory_page(timeline))
