"""Read executables from bytes (saved_format.py).

An archive is not trusted (saved_archive.py): its module is verified and lowered again (saved_module.py). The program
that lies beside the module is used if the caller trusts the file. A caller may also have one from another place, such
as the user's own cache. Then the module is read only if somebody asks for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from runtime.codegen.llvm.jit import host_jit
from runtime.executable import Executable
from runtime.saved_archive import Archive, read_archive
from runtime.saved_program import executable_of

if TYPE_CHECKING:
    from spmd.hlo import HloModule


def load_bytes(
    data: bytes, where: str = "<bytes>", *, check: bool = False, trusted: bool = False
) -> Executable:
    """Return the executable in ``data``. Raises SpmdError, naming ``where``, if it is none or is not valid.

    check: run the buffer and schedule checkers on the result. trusted: use the thunks and the machine code in ``data``,
    which can do to this process what a program can, if they are for a machine like this one.
    """
    archive = read_archive(data, where)
    return load_archive(archive, where, check=check, program=trust(archive) if trusted else None)


def trust(archive: Archive) -> bytes | None:
    """Use the machine code in ``archive`` in this process from now on. Returns the archive's thunks."""
    host_jit().trusted_code.update(archive.code)
    return archive.program


def load_archive(
    archive: Archive, where: str, *, check: bool = False, program: bytes | None = None
) -> Executable:
    """Return the executable in ``archive``. Raises SpmdError, naming ``where``, if it is not valid.

    check: as in ``load_bytes``. program: thunks of this module that the caller trusts (saved_program.py); they are used
    if they are for a machine like this one.
    """
    read = partial(_read_module, archive.module, where)
    made = None
    if program is not None and not check:
        made = executable_of(program, read, where)
    if made is None:
        # A program that is there as thunks needs no reader of modules, no buffer assignment and no emission.
        from runtime.saved_module import lower_saved

        made = lower_saved(read(), archive.header, where, check=check)
    if archive.header.get("overlap") is not None:
        # Few programs have it, and reports alone read it, but it names what the module has.
        from runtime.saved_module import read_saved_overlap

        made.overlap = read_saved_overlap(archive.header["overlap"], made.module, where)
    return made


def _read_module(stored: bytes, where: str) -> HloModule:
    from runtime.saved_module import read_module  # as above

    return read_module(stored, where)
