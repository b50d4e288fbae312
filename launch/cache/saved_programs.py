"""Saved executables as thunks: those in the file if the user trusts it, else those that were made of it here before.

A program that was made of a file is cached along with machine code (cache_folder.py), under a digest of the file, the
machine and the project's sources. Only the user writes there, so it is used without checks.
"""

from __future__ import annotations

import os
from contextlib import suppress

from launch.cache import PROGRAM_CACHE_VARIABLE
from launch.cache.cache_folder import keep_objects
from launch.cache.digest import full_digest_of, sources_digest
from launch.ranks.messages import report_note
from runtime.codegen.llvm.object_cache import key_of
from runtime.executable import Executable
from runtime.saved_archive import SavedExecutableError, read_archive, with_program
from runtime.saved_program import (
    is_for_this_machine,
    load_archive,
    program_bytes,
    program_target,
    trust,
)
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LoadedFile:
    """A saved executable that was loaded of ``data``; ``program``: the thunks that were used instead of its own."""

    executable: Executable
    data: bytes
    program: bytes | None

    @property
    def sound(self) -> bytes:
        """The bytes of the file for other ranks, with thunks that were compiled on this machine or are trusted."""
        return with_program(self.data, self.program)


def load_file_bytes(data: bytes, where: str, *, trusted: bool) -> LoadedFile:
    """Load a saved executable. Raises SpmdError, naming ``where``, if it is none or is not valid.

    trusted: use the thunks in ``data`` where they are for a machine like this one.
    """
    archive = read_archive(data, where)
    if trusted:
        if archive.program is not None and not is_for_this_machine(archive.program):
            report_note(
                f"the thunks in {where} are for another processor or version: "
                "its module is compiled again"
            )
        executable = load_archive(archive, where, program=trust(archive))
        return LoadedFile(executable, data, archive.program)
    store = None if os.environ.get(PROGRAM_CACHE_VARIABLE) == "off" else keep_objects()
    key = "" if store is None else _key(data)
    stored = None if store is None else store.get(key)
    if stored is not None:
        with suppress(SavedExecutableError):  # compiled again below, with the same result
            executable = load_archive(archive, where, program=stored)
            return LoadedFile(executable, data, stored)
    executable = load_archive(archive, where)
    program = program_bytes(executable)
    if store is not None and program is not None:
        store.put(key, program)
    return LoadedFile(executable, data, program)


def _key(data: bytes) -> str:
    """Return a digest of all that thunks are made by: the file, this machine and the project's sources."""
    return key_of(("saved program", full_digest_of(data), program_target(), sources_digest()))
