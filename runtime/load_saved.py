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
from runtime.saved_archive import read_archive
from runtime.saved_program import executable_of

if TYPE_CHECKING:
    from spmd.hlo import HloModule


def load_bytes(
    data: bytes,
    where: str = "<bytes>",
    *,
    check: bool = False,
    trusted: bool = False,
    program: bytes | None = None,
) -> Executable:
    """Return the executable in ``data``. Raises SpmdError, naming ``where``, if it is none or is not valid.

    check: run the buffer and schedule checkers on the result.
    trusted: use the thunks in ``data``, which can do to this process what machine code can, if they are for a machine
    like this one, and the machine code in it. program: the thunks that this module became on this machine
    (saved_program.py), used in their place.
    """
    archive = read_archive(data, where)
    if trusted:
        host_jit().trusted_code.update(archive.code)
        program = archive.program if program is None else program
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
