"""Compiled code, machine code and programs, cached on disk in a folder that only its owner can write.

A user who can write there can make the folder's owner run code: ``private_folder.py`` decides which folders are used.
Each file holds a digest of its key and contents, so that half-written, damaged or exchanged files count as absent.
Losing files, or all of the folder, only costs compile time.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

from runtime.codegen.llvm.private_folder import PrivateFolder
from spmd.lazy_dataclass import dataclass

_MAGIC = b"spmd-object 2\n"
#: Largest entry in bytes: a kernel's code has some KiB, a program with its constants some MiB at
#: most.
_MAX_OBJECT = 32 << 20
#: Largest size of the folder in bytes: beyond it the least recently used files are removed, until
#: half is left.
MAX_FOLDER = 256 << 20
#: Average bytes that all processes add between two scans of the folder: a scan of ten thousand
#: files takes a tenth of a second.
_BYTES_BETWEEN_SCANS = 16 << 20
#: Seconds after which no process is still writing a file.
_LEFT_OVER = 3600.0
#: Suffix of an empty file that marks an entry as being made; seconds between checks of it, and
#: seconds after which its process counts as stopped: LLVM makes a kernel in a tenth of a second.
_CLAIM, _POLL_SECONDS, _CLAIM_SECONDS = ".claim", 1e-3, 2.0


def key_of(parts: Iterable[str]) -> str:
    """Return a digest of ``parts``, to be used as a key."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class ObjectCache:
    """Cache of byte entries; their keys are file names (``key_of``)."""

    _files: PrivateFolder

    @staticmethod
    def opened(folder: Path) -> ObjectCache | None:
        """Open a folder, and create it if missing; None if it is not private to this user, or cannot be created."""
        files = PrivateFolder.open(folder)
        return None if files is None else ObjectCache(files)

    @property
    def folder(self) -> Path:
        return self._files.path

    def get(self, key: str) -> bytes | None:
        """Return the entry; None if it was never put, or its file is damaged or belongs to another key."""
        try:
            data = self._files.read(key, _MAX_OBJECT)
        except OSError:
            return None
        if data is None:
            return None
        head = len(_MAGIC) + hashlib.sha256().digest_size
        code = data[head:]
        return code if data[:head] == _header(key, code) else None

    def put(self, key: str, code: bytes) -> None:
        """Store an entry; if the folder cannot be written to, nothing happens.

        The folder is trimmed with a probability that grows with the entry's size, since it grows by what is stored.
        """
        data = _header(key, code) + code
        if len(data) > _MAX_OBJECT:
            return
        with contextlib.suppress(OSError):
            self._files.write(key, data)
        if secrets.randbelow(_BYTES_BETWEEN_SCANS) < len(data):
            self.trim()

    def claim(self, key: str) -> bool:
        """Claim the entry. Returns whether the caller must make and ``release`` it: no process is making it now."""
        try:
            self._files.create(f"{key}{_CLAIM}")
        except FileExistsError:
            if self._is_claimed(key):
                return False
            self.release(key)  # of a stopped process; no harm if two processes make the entry
        except OSError:
            return True  # the folder cannot be shared
        return True

    def release(self, key: str) -> None:
        """Withdraw the claim: the entry has been put, or will not be."""
        with contextlib.suppress(OSError):
            self._files.remove(f"{key}{_CLAIM}")

    def awaited(self, key: str) -> bytes | None:
        """Wait for the process that has claimed the entry, then return it; None if that put none or is too slow."""
        while self._is_claimed(key):
            time.sleep(_POLL_SECONDS)
        return self.get(key)

    def _is_claimed(self, key: str) -> bool:
        """Return whether a process is making the entry: it has claimed it less than _CLAIM_SECONDS ago."""
        try:
            return time.time() - self._files.modified(f"{key}{_CLAIM}") < _CLAIM_SECONDS
        except OSError:
            return False

    def trim(self, most: int = MAX_FOLDER) -> None:
        """Remove the files longest unused until half of ``most`` bytes is left, if there are more than ``most``.

        Files that killed processes left half-written are removed as well.
        """
        with contextlib.suppress(OSError):
            found = list(self._files.files())
            for about, name in found:
                if "." in name and about.st_mtime < time.time() - _LEFT_OVER:
                    self._discard(name)
            total = sum(about.st_size for about, _ in found)
            if total <= most:
                return
            for about, name in sorted(found, key=lambda one: (one[0].st_mtime, one[1])):
                if total <= most // 2:
                    return
                self._discard(name)
                total -= about.st_size

    def _discard(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(name)


def _header(key: str, code: bytes) -> bytes:
    """Return the header of an entry's file: a digest that verifies its key and contents."""
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + code).digest()
