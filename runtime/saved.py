"""Write executables as bytes (saved_format.py).

The offsets of values are stored because they take longest to find. The rest of memory and thunks is computed again from
these. It is equal on every machine and takes a small part of a compilation.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from runtime.arrays.sharded_arrays import ArraySpec
from runtime.buffers.heap.recorded_heaps import RecordedHeaps
from runtime.executable import Executable
from runtime.saved_format import FORMAT, HEADER, MODULE, VERSION, SavedExecutableError
from runtime.saved_overlap import overlap_json, read_overlap
from spmd.proto.writer import serialize_hlo_proto

_EPOCH = (1980, 1, 1, 0, 0, 0)


def save_bytes(executable: Executable) -> bytes:
    """Return the archive; equal executables give equal bytes.

    Raises SavedExecutableError if the scheduler's expectations exceed the bounds that ``read_overlap`` accepts.
    """
    overlap = overlap_json(executable.overlap)
    read_overlap(overlap, executable.module, "overlap", SavedExecutableError)
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
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        text = json.dumps(header)
        archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), text)
        archive.writestr(zipfile.ZipInfo(MODULE, _EPOCH), serialize_hlo_proto(executable.module))
    return stream.getvalue()


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
