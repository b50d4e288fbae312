"""Arrays of a program in .npz files: inputs arg0, arg1, ... and outputs out0, out1, ...

NumPy has no bfloat16 and no 8-bit floats: a file holds their raw bits as unsigned integers, and the module's types
say how to read them. Files are read without pickle. Where no array has such a name, the arrays are arr_0, arr_1, ...,
as np.savez names positional arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from spmd.errors import SpmdError
from spmd.shape import ArrayShape, PrimitiveType

if TYPE_CHECKING:
    from runtime.arrays.sharded_arrays import ShardedArrays
    from runtime.executable import Executable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class InputError(SpmdError):
    """A file of arrays that cannot be read, or does not fit the program."""


def read_inputs(path: Path, shapes: Sequence[ArrayShape]) -> list[Array]:
    """Return arg0, arg1, ... of ``path`` as arrays of ``shapes``. Raises InputError with the name of one that is
    missing or does not fit.
    """
    return read_arrays(path, "arg", shapes)


def read_arrays(path: Path, prefix: str, shapes: Sequence[ArrayShape]) -> list[Array]:
    # A run with inputs from a seed reads no file.
    from launch.data.npz import StoredArrays

    stored = StoredArrays(path)
    arrays = []
    for index, shape in enumerate(shapes):
        name = stored.name_of(prefix, index)
        if name not in stored:
            raise InputError(
                f"{path}: {name} ({shape.without_layout()}) is missing; {_contents(stored)}"
            )
        arrays.append(from_storage(stored[name], shape, f"{path}: {name}"))
    return arrays


def file_digest(path: Path) -> str:
    """Return a digest of the file's names and checksums; it reads no array."""
    from launch.data.npz import StoredArrays  # deferred, as above

    return StoredArrays(path).digest()


def write_arrays(path: Path, prefix: str, arrays: Sequence[Array]) -> None:
    """Write ``prefix``0, ``prefix``1, ...; types that NumPy lacks as their bits.

    As NumPy does, it adds .npz to a name without it. Raises OutputFileError if there is no space.
    """
    named = {f"{prefix}{index}": to_storage(array) for index, array in enumerate(arrays)}
    target = path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    from spmd.output_file import replaced_file  # only if arrays are written

    with replaced_file(target) as file:
        np.savez(file, **named)  # type: ignore[arg-type]


def seeded_inputs(seed: int, shapes: Sequence[ArrayShape]) -> list[Array]:
    """Return reproducible values: normal floats, integers from 0 to 7, random pred."""
    return list(SeededInputs(seed, shapes))


class SeededInputs(Sequence[Array]):
    """``seeded_inputs``, each made on demand; ``deviation`` is the standard deviation of floats."""

    def __init__(self, seed: int, shapes: Sequence[ArrayShape], deviation: float = 1.0) -> None:
        self._seed = seed
        self._shapes = shapes
        self._deviation = deviation

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        rng = np.random.default_rng([self._seed, index])
        return _random(rng, self._shapes[index], self._deviation)


def from_storage(stored: Array, shape: ArrayShape, where: str) -> Array:
    """Return ``stored`` as an array of ``shape``: bits are reinterpreted. Raises InputError if size or type differ."""
    dtype = shape.element_type.numpy
    if stored.dtype != dtype and _holds_bits_of(stored.dtype, shape.element_type):
        stored = stored.view(dtype)
    if stored.dtype != dtype or stored.shape != shape.dims:
        found = f"{stored.dtype}[{','.join(map(str, stored.shape))}]"
        raise InputError(f"{where} is {found}, the module expects {shape.without_layout()}")
    return np.ascontiguousarray(stored).reshape(shape.dims)


def to_storage(array: Array) -> Array:
    """Return the array, or its bits if NumPy's file format cannot express the type."""
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:
        return array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return array


def _holds_bits_of(stored: np.dtype[Any], element_type: PrimitiveType) -> bool:
    """Return whether ``stored`` is an unsigned integer or raw type of the same size as an element type that NumPy does
    not have.
    """
    native = element_type.numpy.isbuiltin == 1
    return not native and stored.kind in "uV" and stored.itemsize == element_type.byte_size


def _random(rng: np.random.Generator, shape: ArrayShape, deviation: float) -> Array:
    kind = shape.element_type
    if kind is PrimitiveType.PRED:
        return np.asarray(rng.random(shape.dims) < 0.5)
    if kind.is_integer:
        return np.asarray(rng.integers(0, min(8, 1 << (kind.bits - 1)), shape.dims)).astype(
            kind.numpy
        )
    values = np.asarray(rng.standard_normal(shape.dims))
    if kind.is_complex:
        values = values + 1j * rng.standard_normal(shape.dims)
    return (deviation * values).astype(kind.numpy)


def _contents(stored: Mapping[str, Array]) -> str:
    names = sorted(stored)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"the file holds {listed}" if names else "the file is empty"


# ---- files of tiles: devices read them before the first step and write them after the last
#
# No process holds a global array. A file of global arrays is mapped, and each process reads its own tiles. A name that
# contains ``%r`` denotes one file of tiles per device.


#: Part of a file's name that stands for the number of the device.
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
