"""The device program of a saved executable as bytes: what buffer assignment and emission made of its module.

    target, 64 bytes | length of the records, 8 bytes | records (saved_records.py) as JSON | the constants' bytes

A program is used where its target is this machine, and only if the user trusts who wrote it: wrong thunks read and
write memory that is not theirs. Anybody else makes it again from the module, which is verified.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from runtime.arrays.sharded_arrays import ArraySpec
from runtime.buffers.types import AllocationKind, ArrayView, BufferAssignment
from runtime.codegen.llvm.jit import host_jit
from runtime.codegen.llvm.object_cache import key_of
from runtime.cpu import kernels as _kernels  # noqa: F401 - the kernel library finds its binders there
from runtime.device_program import DeviceProgram, ScheduledModule
from runtime.executable import Executable
from runtime.program.thunks import ThunkSequence
from runtime.saved_archive import Archive, SavedExecutableError, read_archive
from runtime.saved_records import NotARecordError, read_records, write_records
from spmd import __version__
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from spmd.hlo import HloModule

#: Largest constants, in bytes, of a program that is saved: the module has them, too.
MOST_CONSTANTS = 16 << 20
#: Version of the format. It is raised when the meaning of a record changes but its fields do not.
_VERSION = 2
_TARGET, _LENGTH = 64, 8


@dataclass(frozen=True)
class SavedProgram:
    """``constants``: allocations, in the order of their bytes. ``aliases``: pairs (output, input), as of Executable."""

    name: str
    thunks: ThunkSequence
    assignment: BufferAssignment
    constants: tuple[tuple[int, ArrayShape], ...]
    parameters: tuple[ArrayShape, ...]
    results: tuple[ArrayView, ...]
    num_partitions: int
    replica_count: int
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    aliases: tuple[tuple[int, int], ...]

    def device_program(self, constants: bytes) -> DeviceProgram:
        """Raises SavedExecutableError if ``constants`` has other bytes than those of the constants."""
        arrays: dict[int, NDArray] = {}
        offset = 0
        for index, shape in self.constants:
            own = constants[offset : offset + shape.byte_size]
            offset += shape.byte_size
            if len(own) < shape.byte_size:
                raise SavedExecutableError("constants are missing")
            arrays[index] = np.frombuffer(own, shape.element_type.numpy).reshape(shape.dims)
        allocations = self.assignment.of_kind(AllocationKind.CONSTANT)
        if offset != len(constants) or {one.index for one in allocations} != set(arrays):
            raise SavedExecutableError("constants do not fit their allocations")
        return DeviceProgram(
            self.name,
            self.thunks,
            self.assignment,
            arrays,
            self.parameters,
            self.results,
            self.num_partitions,
            self.replica_count,
        )


def program_target() -> str:
    """Return a digest of this version and of all that emission asks for: processor, compiler and libraries."""
    return key_of(("program", __version__, str(_VERSION), np.__version__, *host_jit().made_by))


def program_bytes(executable: Executable) -> bytes | None:
    """Return the program of this machine; None for one that is not kept.

    Such a program has large constants, or instructions that the reference evaluator computes.
    """
    program = executable.program
    constants = sorted(program.constants.items())
    if sum(array.nbytes for _, array in constants) > MOST_CONSTANTS:
        return None
    saved = SavedProgram(
        program.name,
        program.thunks,
        program.assignment,
        tuple(
            (index, ArrayShape(PrimitiveType.from_numpy(array.dtype), array.shape))
            for index, array in constants
        ),
        tuple(map(_without_default_layout, program.parameters)),
        program.outputs,
        program.num_partitions,
        program.replica_count,
        executable.inputs,
        executable.outputs,
        tuple(sorted(executable.aliases.items())),
    )
    try:
        text = json.dumps(write_records(saved), separators=(",", ":")).encode()
    except NotARecordError:
        return None
    data = b"".join(np.ascontiguousarray(array).tobytes() for _, array in constants)
    return program_target().encode() + len(text).to_bytes(_LENGTH, "little") + text + data


def _without_default_layout(shape: ArrayShape) -> ArrayShape:
    """Return the shape as it is alike before and after its module was a proto, which names all layouts."""
    has_default = shape.layout is not None and shape.layout.is_default
    return shape.without_layout() if has_default else shape


def is_for_this_machine(data: bytes) -> bool:
    """Return whether the program was made by such a processor, compiler and libraries as are here."""
    return data[:_TARGET] == program_target().encode()


def executable_of(
    data: bytes, read_module: Callable[[], HloModule], where: str
) -> Executable | None:
    """Return the executable of what ``program_bytes`` has written; None if it is for another machine.

    Raises SavedExecutableError, naming ``where``, if it is damaged.
    """
    if not is_for_this_machine(data):
        return None
    first = _TARGET + _LENGTH
    last = first + int.from_bytes(data[_TARGET:first], "little")
    try:
        saved = read_records(json.loads(data[first:last]))
        if not isinstance(saved, SavedProgram):
            raise SavedExecutableError("records are no program")
        program = saved.device_program(data[last:])
    except (ValueError, RecursionError, SavedExecutableError) as error:
        raise SavedExecutableError(f"{where}: not a saved program: {error}") from error
    source = ScheduledModule(read_module, dict(saved.aliases))
    return Executable(source, program, saved.inputs, saved.outputs)


# ---- executables of archives
#
# An archive is not trusted (saved_archive.py): its module is verified and lowered again (saved_module.py). The program
# that is stored with the module is used if the caller trusts the file. A caller may also pass a program from another
# place, such as the user's own cache. Then the module is read only on request.


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
        # A program with thunks needs no reader of modules, no buffer assignment and no emission.
        from runtime.saved_module import lower_saved

        made = lower_saved(read(), archive.header, where, check=check)
    overlap = archive.header.get("overlap")
    if overlap is not None:
        # Deferred: few programs have it, and only reports read it, but it refers to the module.
        from runtime.saved_overlap import read_overlap

        made.overlap = read_overlap(overlap, made.module, f"{where}: overlap")
    return made


def _read_module(stored: bytes, where: str) -> HloModule:
    from runtime.saved_module import read_module  # as above

    return read_module(stored, where)
