"""What a MODULE argument names: a module, or an executable that was saved."""

from __future__ import annotations

import sys
from pathlib import Path

from launch.digest import digest_of
from runtime.executable import Executable
from runtime.saved import MAGIC, load_bytes
from spmd.errors import HloParseError
from spmd.hlo import HloModule
from spmd.text.dump_directory import dumped_module, split_choice
from spmd.text.load import load, parse_bytes
from spmd.verifier.verifier import verify

STANDARD_INPUT = "-"


def load_module(argument: str) -> HloModule:
    """The parsed and verified module; SpmdError where it cannot be read."""
    if argument == STANDARD_INPUT:
        module = parse_bytes(sys.stdin.buffer.read(), "<stdin>")
    else:
        module = load(argument)
    verify(module)
    return module


def load_saved(argument: str) -> Executable | None:
    """The saved executable; None where ``argument`` names something else."""
    if argument == STANDARD_INPUT:
        return None
    try:
        with Path(argument).open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
        return load_bytes(Path(argument).read_bytes(), argument)
    except OSError:
        return None  # what it is, the reader of modules says


def digest(argument: str) -> str:
    """What tells two ranks' MODULEs apart without parsing them. HloParseError where a rank cannot read it."""
    if argument == STANDARD_INPUT:
        return "standard input"  # which a launcher gives to rank 0 alone
    path, choice = split_choice(Path(argument))
    try:
        if path.is_dir():
            path = dumped_module(path, choice).file
        return digest_of(path.read_bytes())
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
