"""Resolution of MODULE arguments: a module, or a saved executable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from launch.cache.digest import digest_of, full_digest_of
from runtime.executable import Executable
from runtime.saved import MAGIC, load_bytes
from spmd.errors import HloParseError
from spmd.hlo import HloModule
from spmd.proto import serialize_hlo_proto
from spmd.text.dump_directory import dumped_module, split_choice
from spmd.text.load import load, parse_bytes
from spmd.verifier.verifier import verify

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class ModuleSource:
    """A module that need not be read where a program that was made of it is found.

    ``read`` gives it verified; SpmdError where it cannot be. ``known_digest``: of the bytes that it is read from; None
    for one that is not read from one file.
    """

    read: Callable[[], HloModule]
    known_digest: str | None = None

    @cached_property
    def module(self) -> HloModule:
        return self.read()

    @cached_property
    def digest(self) -> str:
        """Equal ones have equal programs."""
        if self.known_digest is not None:
            return f"bytes {self.known_digest}"
        return f"proto {full_digest_of(serialize_hlo_proto(self.module))}"


def source_of(argument: str) -> ModuleSource:
    """Return the source that a MODULE argument names. Raises HloParseError if the file cannot be read."""
    path = Path(argument)
    if argument == STANDARD_INPUT or not path.is_file():
        return ModuleSource(partial(load_module, argument))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
    return ModuleSource(partial(_parsed, data, argument), full_digest_of(data))


def _parsed(data: bytes, file: str) -> HloModule:
    module = parse_bytes(data, file)
    verify(module)
    return module


def load_module(argument: str) -> HloModule:
    """The parsed and verified module; SpmdError where it cannot be read."""
    if argument == STANDARD_INPUT:
        data = sys.stdin.buffer.read()
        if data.startswith(MAGIC):
            raise _is_executable("<stdin>")
        module = parse_bytes(data, "<stdin>")
    elif _is_saved(argument):
        raise _is_executable(argument)
    else:
        module = load(argument)
    verify(module)
    return module


def load_saved(argument: str) -> Executable | None:
    """The saved executable; None where ``argument`` names something else."""
    if argument == STANDARD_INPUT:
        return None
    try:
        return load_bytes(Path(argument).read_bytes(), argument) if _is_saved(argument) else None
    except OSError:
        return None  # what it is, the reader of modules says


def _is_saved(argument: str) -> bool:
    """Return whether the file is a saved executable. A pipe can be read only once, so it is left to the reader of
    modules."""
    path = Path(argument)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _is_executable(where: str) -> HloParseError:
    return HloParseError(
        f"{where} is an executable that `spmd compile` wrote, which only run, bench and profile take; here it must be "
        "the module that it was made of"
    )


def digest(argument: str) -> str:
    """Return a text that differs if two ranks have different MODULEs, without parsing them. Raises HloParseError if a
    rank cannot read its own."""
    if argument == STANDARD_INPUT:
        return "standard input"  # which a launcher gives to rank 0 alone
    path, choice = split_choice(Path(argument))
    try:
        if path.is_dir():
            path = dumped_module(path, choice).file
        return digest_of(path.read_bytes())
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
