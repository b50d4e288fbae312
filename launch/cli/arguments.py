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
        raise argparse.ArgumentTypeError(f"expected at least 1, found {value}")
    return value


def seed(text: str) -> int:
    """Return what NumPy takes to make numbers from."""
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected 0 or more, found {value}")
    return value


def tolerance(text: str) -> float:
    """Return zero or more; `inf` is allowed."""
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"expected a number that is 0 or more, found {text}")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, found {text!r}") from None


def positive_seconds(text: str) -> float:
    """Return a time above zero; `inf` is allowed."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {text!r}") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, found {text}")
    return value


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int:
    """Parse a number of bytes, or of KiB, MiB and GiB as in 512K, 64M, 1.5G (an argparse type)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected bytes (1000000, 512K, 1.5G), found {text!r}")
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
        "that --xla_dump_to wrote (DIR:NAME if it holds several modules)"
        + ("; or an executable that `spmd compile` wrote" if executable else "")
        + "; `-` reads standard input",
    )
    parser.add_argument(
        "--devices",
        type=positive,
        metavar="N",
        help="number of devices (default: from the module's header, shardings or replica groups)",
    )
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="logical: a module to partition; partitioned: one device's program (default: detected from the module)",
    )
    parser.add_argument(
        "--fusion",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="fuse instructions into one kernel if that saves time on the target machine (default: on)",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=COLLECTIVE_GROUPS,
        default=[],
        help="skip a group of passes on collectives; may be repeated",
    )
    parser.add_argument(
        "--without-callbacks",
        action="store_true",
        help="remove calls of Python functions without results, such as jax.debug.print: a module file does not hold "
        "these functions",
    )


#: Machine whose network joins the nodes of a machine without a measured network.
NETWORK = "tcp-cluster"


def add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME|F.json",
        help="target machine: cpu-avx512, tcp-cluster, ..., or a description that `spmd calibrate -o` wrote; "
        "M{node=2} has nodes of two devices, M{links=0.25} has links with a quarter of the bandwidth (default: this "
        f"machine as `spmd calibrate` measured it; {NETWORK}'s network between nodes if that was not measured)",
    )
    parser.add_argument(
        "--durations",
        type=Path,
        metavar="F.json",
        help="schedule by measured times instead of predicted ones: a trace that `spmd profile --trace` wrote for the "
        "same module, options and machine, or {instruction: seconds}",
    )


def add_memory_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory-limit",
        type=byte_count,
        metavar="B",
        help="memory limit of a device in bytes (or 64M, 1.5G): the compiler rematerializes values or computes them in "
        "pieces until the program fits; an error lists the largest buffers if it cannot fit",
    )


# ---- how a program is run


def add_program_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add MODULE, which is optional unless ``required``, and the arguments of all commands that run it."""
    parser.epilog = HELP
    add_module_arguments(parser, required=required, executable=True)
    parser.add_argument(
        "--trust",
        action="store_true",
        help="use the thunks and machine code of a file that `spmd compile` wrote for this kind of processor, instead "
        "of compiling its module again; only for files from a source whose programs you would run",
    )
    add_machine(parser)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=None,
        metavar="S",
        help="limit in seconds of a wait for a rank that makes no progress, and of a loop in the reference evaluator "
        f"(default: SPMD_TIMEOUT, else {DEFAULT_SECONDS:g})",
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
        help="seed of the random inputs (default: 0)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=("cpu", "gpu"),
        default="cpu",
        help="run on this machine's cores or on GPUs, see docs/gpu.md (default: cpu)",
    )
