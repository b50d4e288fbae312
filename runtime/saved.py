"""Write executables as bytes (saved_archive.py).

The offsets of values are stored because they take longest to find. The rest of memory and thunks is computed again from
these, and stored as well, for readers on such a machine who trust the file (saved_program.py).
"""

from __future__ import annotations

import json
from typing import Any

from runtime.arrays.sharded_arrays import ArraySpec
from runtime.buffers.heap.recorded_heaps import RecordedHeaps
from runtime.executable import Executable
from runtime.saved_archive import FORMAT, VERSION, archive_bytes
from runtime.saved_overlap import overlap_json, read_overlap
from runtime.saved_program import program_bytes
from spmd.proto.writer import serialize_hlo_proto


def save_bytes(executable: Executable, code: bytes = b"") -> bytes:
    """Return the archive; equal executables give equal bytes.

    code: machine code that is put beside it (saved_archive.py).
    Raises SavedExecutableError if the scheduler's expectations exceed the bounds that ``read_overlap`` accepts.
    """
    overlap = None if executable.overlap is None else overlap_json(executable.overlap)
    if overlap is not None:
        read_overlap(overlap, executable.module, "overlap")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": executable.module.name,
        "devices": executable.num_devices,
        "inputs": [_spec_json(one) for one in executable.inputs],
        "outputs": [_spec_json(one) for one in executable.outputs],
        "memory": _memory_json(RecordedHeaps.of(executable.program.assignment)),
        "overlap": overlap,
    }
    module = serialize_hlo_proto(executable.module)
    return archive_bytes(json.dumps(header), module, program_bytes(executable), code)


def _memory_json(recorded: RecordedHeaps) -> dict[str, Any]:
    heaps = [
        {
            "space": heap.color.memory_space,
            "groups": heap.color.groups,
            "size": heap.size,
            "algorithm": heap.algorithm,
        }
        for heap in recorded.heaps
    ]
    return {"heaps": heaps, "places": recorded.offsets, "sizes": recorded.sizes}


def _spec_json(spec: ArraySpec) -> dict[str, str | None]:
    sharding = None if spec.sharding is None else str(spec.sharding)
    return {"shape": str(spec.shape.without_layout()), "sharding": sharding}
