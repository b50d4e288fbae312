"""Arguments that several commands share, and argparse's types of their values."""

from __future__ import annotations

import argparse
import contextlib
import re
from pathlib import Path

from launch.cache import HELP
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.ranks.rank_environment import DEFAULT_SECONDS

# ---- types: invalid numbers give a short error


def positive(text: str) -> int:
    """Return an integer of at least one."""
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def seed(text: str) -> int:
    """Return what NumPy takes to make numbers from."""
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below zero")
    return value


def tolerance(text: str) -> float:
    """Return zero or more; `inf` is allowed."""
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"{text} is no tolerance: a number from 0 on")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def positive_seconds(text: str) -> float:
    """Return a time above zero; `inf` is allowed."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} seconds are not above zero")
    return value


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int:
    """Parse a number of bytes, or of KiB, MiB and GiB as in 512K, 64M, 1.5G (an argparse type)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes (1000000, 512K, 1.5G)")
    return int(float(match[1]) * _UNITS[match[2].upper()])


# ---- the module and how it is compiled

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


#: Machine whose network joins the nodes of a machine without a measured network.
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


def add_memory_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory-limit",
        type=byte_count,
        metavar="B",
        help="bytes (or 64M, 1.5G) that the program may take of a device: values are computed again instead of being "
        "kept, or in pieces, until it fits; one that cannot fit is refused, naming its largest buffers",
    )


# ---- how a program is run


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
        choices=("cpu", "gpu"),
        default="cpu",
        help="what computes: this machine's cores (default: cpu) or GPUs (docs/gpu.md)",
    )
