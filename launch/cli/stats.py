"""`spmd stats MODULE --devices N`: what one device does, sends and holds."""

from __future__ import annotations

import argparse
import json

from launch.cli.arguments import add_machine, add_memory_limit, add_module_arguments
from launch.cli.memory_plot import add_memory_plot, write_memory_plot
from launch.cli.output_path import require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module
from launch.ranks.messages import printable
from launch.report.statistics import count_executable, format_statistics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compile a module and print its figures for one device."
    add_module_arguments(parser)
    add_machine(parser)
    add_memory_limit(parser)
    add_memory_plot(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_writable(options.memory_plot)
    module = read_module(options)
    statistics, executable = count_executable(module, options.devices, compile_options(options))
    if options.memory_plot is not None:
        write_memory_plot(executable, options.memory_plot)
    if options.json:
        print(json.dumps(statistics.as_json()))
    else:
        print(printable(format_statistics(statistics)))
    return 0
