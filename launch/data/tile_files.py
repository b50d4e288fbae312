"""Files of tiles, which devices read before the first step and write after the last; no process holds a global array.

A file of global arrays is mapped, and each process looks at its own tiles. A name with ``%r`` in it stands for one file
of tiles for each device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from launch.data.inputs import read_inputs, write_arrays
from runtime.arrays.sharded_arrays import ShardedArrays
from runtime.executable import Executable

#: In the name of a file: the device's number.
PER_DEVICE = "%r"


def is_per_device(file: Path) -> bool:
    return PER_DEVICE in file.name


def of_device(file: Path, device: int) -> Path:
    return file.with_name(file.name.replace(PER_DEVICE, str(device)))


def read_tiles(executable: Executable, file: Path) -> ShardedArrays:
    """Return the inputs that each of this process's devices reads from its own file."""
    shapes = executable.program.parameters
    return executable.put_tiles(
        [read_inputs(of_device(file, d), shapes) for d in executable.devices]
    )


def write_tiles(executable: Executable, outputs: ShardedArrays, file: Path) -> None:
    for device, own in zip(executable.devices, outputs.tiles, strict=True):
        write_arrays(of_device(file, device), "out", [np.asarray(tile) for tile in own])
