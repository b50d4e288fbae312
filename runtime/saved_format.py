"""Format of saved executables: a zip archive of the scheduled module and of the shapes and shardings of its arrays.

    executable.json   format, version, shape and sharding of every input and output in HLO text syntax, the offsets
                      of values in heaps, and what the scheduler expects of collectives (saved_overlap.py)
    module.hlo.pb     the scheduled per-device module, constants included, as an HloProto
    program           what a machine like the writer's makes of it (saved_program.py); not of every module
    code              machine code for the writer's processor (saved_code.py), if it was asked for

saved.py writes it and load_saved.py reads it.
"""

from __future__ import annotations

from spmd.errors import SpmdError

FORMAT = "spmd-executable"
VERSION = 5
HEADER = "executable.json"
MODULE = "module.hlo.pb"
PROGRAM = "program"
CODE = "code"


class SavedExecutableError(SpmdError):
    """Bytes that are not an executable of this version."""
