"""`--memory-limit B`, for the commands that take it."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int:
    """Parse a number of bytes, or of KiB, MiB and GiB as in 512K, 64M, 1.5G (an argparse type)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes (1000000, 512K, 1.5G)")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def add_memory_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory-limit",
        type=byte_count,
        metavar="B",
        help="bytes (or 64M, 1.5G) that the program may take of a device: values are computed again instead of being "
        "kept, or in pieces, until it fits; one that cannot fit is refused, naming its largest buffers",
    )
