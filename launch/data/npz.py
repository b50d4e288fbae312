"""Arrays of an .npz file where they lie: stored members are mapped, so that what is not looked at is not read."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from launch.cache.digest import digest_of
from launch.data.inputs import Array, InputError

_LOCAL_HEADER = struct.Struct("<26x2H")
"""A zip member's local header, of which only the lengths of the name and of the extra field are of use."""


class StoredArrays(Mapping[str, Array]):
    """The arrays of ``path`` by name, read-only. Raises InputError if it is not an .npz file or has object arrays.

    A compressed member (``numpy.savez_compressed``) is read entirely when it is requested.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise self._unreadable(error) from error
        self._members = {one.filename.removesuffix(".npy"): one for one in members}
        #: By prefix: whether the file's arrays are named by position instead.
        self._positional: dict[str, bool] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, name: str) -> Array:
        member = self._members[name]
        try:
            if member.compress_type == zipfile.ZIP_STORED:
                return self._mapped(member)
            with zipfile.ZipFile(self.path) as archive:
                return _read_npy(archive.read(member))
        except (OSError, ValueError, struct.error, zipfile.BadZipFile) as error:
            raise self._unreadable(error) from error

    def name_of(self, prefix: str, number: int) -> str:
        """Return the name of array ``number`` of those with this prefix.

        It is arr_N in a file of ``np.savez(F, a, b)``, which has no name with the prefix.
        """
        is_positional = self._positional.get(prefix)
        if is_positional is None:
            # Only names are needed: whether ``self`` has an array would require reading it.
            names = self._members
            is_positional = "arr_0" in names and not any(name.startswith(prefix) for name in names)
            self._positional[prefix] = is_positional
        return f"{'arr_' if is_positional else prefix}{number}"

    def digest(self) -> str:
        """Return a digest of the file's names and checksums; it reads no array."""
        listed = sorted((name, one.CRC, one.file_size) for name, one in self._members.items())
        return digest_of(repr(listed).encode())

    def _mapped(self, member: zipfile.ZipInfo) -> Array:
        with self.path.open("rb") as file:
            file.seek(member.header_offset)
            name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(name + extra, io.SEEK_CUR)
            start = file.tell()
            shape, fortran, dtype = _npy_header(file)
            offset = file.tell()
        if offset - start + dtype.itemsize * math.prod(shape) != member.file_size:
            raise ValueError(f"{member.filename} is not as long as its header says")
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        mapped = np.memmap(
            self.path, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C"
        )
        return np.asarray(mapped)

    def _unreadable(self, error: Exception) -> InputError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        return InputError(f"{self.path}: not a readable .npz file: {why}")


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"an array of .npy version {version}")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    return shape, fortran, dtype


def _read_npy(data: bytes) -> Array:
    return np.asarray(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False))
