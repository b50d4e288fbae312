"""Resolution of MODULE arguments that name a module; saved_argument.py resolves those of saved executables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

from launch.cache.digest import digest_of, full_digest_of
from launch.saved_argument import MAGIC, STANDARD_INPUT, is_executable, is_saved
from spmd.errors import HloParseError
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.proto.writer import serialize_hlo_proto
from spmd.text.sources.dump_directory import dumped_module, split_choice
from spmd.text.sources.load import load, parse_bytes
from spmd.verifier.verifier import verify


@dataclass(frozen=True)
class ModuleSource:
    """A module that is read only if no compiled program of it is found.

    read: function that returns the verified module. Raises SpmdError if it cannot be read.
    known_digest: digest of the file that it is read from; None if it is not read from one file.
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
    """Return the parsed and verified module. Raises SpmdError if it cannot be read."""
    if argument == STANDARD_INPUT:
        data = sys.stdin.buffer.read()
        if data.startswith(MAGIC):
            raise is_executable("<stdin>")
        module = parse_bytes(data, "<stdin>")
    elif is_saved(argument):
        raise is_executable(argument)
    else:
        module = load(argument)
    verify(module)
    return module


def digest(argument: str) -> str:
    """Return a text that differs if two ranks have different MODULEs, without parsing them. Raises HloParseError if a
    rank cannot read its own."""
    if argument == STANDARD_INPUT:
        return "standard input"  # a launcher gives it to rank 0 only
    path, choice = split_choice(Path(argument))
    try:
        if path.is_dir():
            path = dumped_module(path, choice).file
        return digest_of(path.read_bytes())
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
