"""`spmd partition MODULE --devices N`: the per-device program, before optimization."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launch.cli.arguments import add_module_arguments
from launch.cli.output_path import require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.costly_reshard_warning import costly_warning
from launch.cli.programs.module_files import read_module, write_text
from launch.pipeline import stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Partition a sharded module and print one device's program, with its collectives."
    )
    add_module_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="F", help="write to a file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_writable(options.output)
    module = read_module(options)
    for stage, compilation in stages(module, options.devices, compile_options(options)):
        if stage == "partitioned":
            if compilation.partitioner is not None:
                sys.stderr.write(costly_warning(compilation.partitioner))
            write_text(str(compilation.module), options.output)
            break
    return 0
