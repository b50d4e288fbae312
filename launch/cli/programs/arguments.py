"""Arguments that all commands which run a program share."""

from __future__ import annotations

import argparse

from launch.cache.program_cache_variable import HELP
from launch.cli.argument_types import positive_seconds, seed
from launch.cli.programs.module_argument import add_module_arguments
from launch.ranks.rank_timeout import DEFAULT_SECONDS
from launch.target.backends import BACKENDS
from launch.target.machine_argument import add_machine


def add_program_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add MODULE, which is optional unless ``required``, and the arguments of all commands that run it."""
    parser.epilog = HELP
    add_module_arguments(parser, required=required, executable=True)
    parser.add_argument(
        "--trust",
        action="store_true",
        help="use the thunks and machine code in a file that `spmd compile` wrote on such a machine, instead of making "
        "them again from its module: only for files of those whose programs you would run",
    )
    add_machine(parser)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=None,
        metavar="S",
        help="seconds a rank waits for one that shows no sign of life, and that a loop of the reference evaluator "
        f"takes (default: {DEFAULT_SECONDS:g}, or what SPMD_TIMEOUT says)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--seed",
        type=seed,
        default=0,
        metavar="S",
        help="make the inputs from a seed (default: 0)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="cpu",
        help="what computes: this machine's cores (default: cpu) or GPUs (docs/gpu.md)",
    )
