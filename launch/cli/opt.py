"""`spmd opt MODULE`: transform a module without running it (XLA's hlo-opt)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from launch.cli.module_argument import (
    add_module_arguments,
    compile_options,
    load_module,
    write_text,
)
from launch.pipeline import stages
from spmd.passes.options import parse_passes
from spmd.passes.pipeline import run_once
from spmd.verifier import verify

HLO_STAGES = ("logical", "partitioned", "optimized", "scheduled")


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "opt",
        help="transform a module and print it",
        description="Read and verify a module, carry it up to a stage, transform it there, and print it.",
    )
    add_module_arguments(parser)
    parser.add_argument(
        "--until",
        choices=HLO_STAGES,
        default="logical",
        help="stage to stop after (default: logical)",
    )
    parser.add_argument(
        "--passes",
        default="",
        metavar="A,B{X=1}",
        help="run these passes, once each in this order, on the module at that stage",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="F", help="write to a file")
    parser.add_argument(
        "--dump-to", type=Path, metavar="DIR", help="write the module after every stage"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    passes = parse_passes(options.passes)
    module = load_module(options.module)
    for number, (stage, compilation) in enumerate(
        stages(module, options.devices, compile_options(options))
    ):
        if options.dump_to is not None:
            options.dump_to.mkdir(parents=True, exist_ok=True)
            name = f"module_0000.{module.name}.{number:04d}.after_{stage}.txt"
            write_text(str(compilation.module), options.dump_to / name)
        if stage == options.until:
            if passes:
                run_once(compilation.module, passes)
                verify(compilation.module)
            write_text(str(compilation.module), options.output)
            break
    return 0
