"""The MODULE argument that most subcommands share, and those of how it is compiled."""

from __future__ import annotations

import argparse

from launch.cli.argument_types import positive
from launch.stages.collective_groups import COLLECTIVE_GROUPS

STAGES = ("logical", "partitioned")


def add_module_arguments(
    parser: argparse.ArgumentParser, *, required: bool = True, executable: bool = False
) -> None:
    """Add MODULE, --devices and --stage. MODULE defaults to standard input unless ``required``.

    ``executable``: it may also be a saved executable.
    """
    parser.add_argument(
        "module",
        nargs=None if required else "?",
        default="-",
        metavar="MODULE",
        help="HLO text, a serialized HloModuleProto or HloProto, StableHLO text (with the jax extra), or a directory "
        "that --xla_dump_to wrote (DIR:NAME where it holds several modules)"
        + ("; or an executable that `spmd compile` wrote" if executable else "")
        + "; `-` reads standard input",
    )
    parser.add_argument(
        "--devices",
        type=positive,
        metavar="N",
        help="number of devices (default: what the module's header, shardings or groups name)",
    )
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="what the module is: to be partitioned, or one device's program (default: by what it holds)",
    )
    parser.add_argument(
        "--fusion",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="make kernels of several instructions where that saves time on this machine",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=COLLECTIVE_GROUPS,
        default=[],
        help="leave out a group of passes on collectives; may be repeated",
    )
    parser.add_argument(
        "--without-callbacks",
        action="store_true",
        help="leave out calls of Python functions that return nothing, as those of jax.debug.print: no file holds them",
    )
