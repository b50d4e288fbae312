"""`spmd explain MODULE --devices N`: why everything is sharded as it is, and why each collective is there."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from launch.cli.arguments import add_module_arguments
from launch.cli.output_path import require_writable
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import read_module, write_text
from launch.pipeline import is_partitioned
from launch.ranks.messages import printable
from partitioner.explain.explain import DEFAULT_MAX_TRIED, explain_module
from partitioner.explain.html import explanation_page
from partitioner.explain.report import Explanation
from partitioner.explain.text import format_costly, format_explanation, format_instruction
from partitioner.spmd_partitioner import require_devices
from spmd.errors import CheckFailed, UnsupportedError
from spmd.text.stage import device_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Partition a module and explain its shardings, collectives and conflicts."
    add_module_arguments(parser)
    output_format = parser.add_mutually_exclusive_group()
    output_format.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    output_format.add_argument(
        "--op",
        metavar="NAME",
        help="print only this instruction and its collectives, or this collective",
    )
    parser.add_argument(
        "--html", type=Path, metavar="F.html", help="write the explanation as a self-contained page"
    )
    parser.add_argument(
        "--remedies",
        type=int,
        default=DEFAULT_MAX_TRIED,
        metavar="K",
        help="try about K annotations that may remove a collective (default: %(default)s); "
        "each one is partitioned",
    )
    parser.add_argument(
        "--strict",
        type=float,
        metavar="BYTES",
        help="exit 1 and list the reshards that receive more than BYTES and over 1.5x the least possible",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    require_writable(options.html)
    module = read_module(options)
    if is_partitioned(module, compile_options(options)):
        raise UnsupportedError(
            f"{module.name} is partitioned already: explain needs the module before partitioning"
        )
    devices = options.devices if options.devices is not None else device_count(module)
    require_devices(module, devices)
    explanation = explain_module(module, devices, max_tried=max(0, options.remedies))
    if options.html is not None:
        write_text(explanation_page(explanation), options.html)
    if options.json:
        print(json.dumps(explanation.as_json()))
    elif options.op is not None:
        print(printable(format_instruction(explanation, options.op)))
    elif options.html is None:
        print(printable(format_explanation(explanation)))
    _require_strict(explanation, options.strict)
    return 0


def _require_strict(explanation: Explanation, least_bytes: float | None) -> None:
    """Raise CheckFailed with the reshards above ``least_bytes`` that receive far more than the lower bound."""
    if least_bytes is None:
        return
    costly = explanation.costly(least_bytes)
    if costly:
        raise CheckFailed(
            f"{len(costly)} costly reshards above {least_bytes:g} bytes:\n{format_costly(costly)}"
        )
