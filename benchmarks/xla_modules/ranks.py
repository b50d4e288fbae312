"""Run modules that were kept on as many MPI ranks as they have devices, and compare with the run in one process.

    python -m benchmarks.xla_modules FOLDER --jax PYTHON --keep KEPT
    python -m launch.mpirun -n 4 -- -m benchmarks.xla_modules.ranks FOLDER KEPT

Modules for another number of devices are passed over. Every output has to have the same bits. The last line says how
many modules had; the exit code is 1 if one had not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import spmd
from benchmarks.xla_modules.arrangement import Arrangement, arranged, arrangement_of
from benchmarks.xla_modules.ours import copies, divided
from launch.data.inputs import Array, read_inputs, to_storage
from launch.data.npz import StoredArrays
from launch.entry import Entry
from launch.options import CompileOptions
from launch.ranks.rank_environment import world_of_environment
from launch.ranks.rank_executable import RankExecutable
from spmd.errors import SpmdError
from spmd.hlo import HloModule


def run(module: HloModule, arrangement: Arrangement, kept: Path, name: str) -> bool:
    """Return whether all ranks have the bits that were kept."""
    options = CompileOptions(partitioned=arrangement.per_device or None)
    executable = spmd.compile(module, devices=arrangement.devices, options=options)
    assert isinstance(executable, RankExecutable)
    rank = executable.communicator.rank
    shapes = Entry.of_module(module).inputs * copies(arrangement)
    arrays = read_inputs(kept / f"{name}.inputs.npz", shapes)
    stored = StoredArrays(kept / f"{name}.npz")
    wanted = [stored[f"out{k}"] for k in range(len(stored))]
    if arrangement.per_device:
        tiles = divided(arrays, arrangement.devices)[rank]
        same = equal(executable.run_devices([tiles])[0], divided(wanted, arrangement.devices)[rank])
    else:
        outputs = executable.run(*arrays)
        same = rank > 0 or equal(outputs, wanted)
    found = executable.communicator.all_gather_bytes(bytes([same]))
    return all(one == b"\x01" for one in found)


def equal(outputs: Sequence[Array], wanted: Sequence[Array]) -> bool:
    return len(outputs) == len(wanted) and all(
        to_storage(a).tobytes() == b.tobytes() for a, b in zip(outputs, wanted, strict=True)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kept", type=Path)
    options = parser.parse_args()
    world = world_of_environment()
    assert world is not None, "run it with `python -m launch.mpirun -n N --`"
    rank, size = world
    ran = right = 0
    for path in sorted(options.kept.glob("*.outputs.npz")):
        name = path.name.split(".")[0]
        module = spmd.load(options.folder / f"{name}.hlo")
        arrangement = arrangement_of(module)
        if arrangement.devices != size or not (options.kept / f"{name}.npz").exists():
            continue
        try:
            same, said = run(arranged(module, arrangement), arrangement, options.kept, name), ""
        except SpmdError as error:
            same, said = False, f": {error}"
        ran, right = ran + 1, right + same
        if rank == 0 and not same:
            print(f"{name}  other bits{said}"[:300], flush=True)
    if rank == 0:
        print(f"{right} of {ran} modules have the same bits on {size} ranks")
    return 0 if right == ran else 1


if __name__ == "__main__":
    sys.exit(main())
