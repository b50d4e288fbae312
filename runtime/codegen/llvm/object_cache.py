"""On-disk cache of machine code and compiled programs, in a folder that only its owner can write.

A user who could write to the folder could make its owner run any code, so ``private_folder.py`` decides which folders
are used. Each file begins with a digest of its key and contents, so that half-written, damaged or exchanged files count
as absent. Loss of files, or of the entire folder, costs only compile time.
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
    """On-disk cache of byte strings. Keys are file names, such as those that ``key_of`` returns."""

    _files: PrivateFolder

    @staticmethod
    def opened(folder: Path) -> ObjectCache | None:
        """Return the cache in ``folder``, which is created if missing.

        Returns None if the folder cannot be opened or created, or is not private to this user.
        """
        files = PrivateFolder.open(folder)
        return None if files is None else ObjectCache(files)

    @property
    def folder(self) -> Path:
        """Return the path at which the folder was opened."""
        return self._files.path

    def get(self, key: str) -> bytes | None:
        """Return the entry ``key``; None if it is not stored, or its file is damaged or belongs to another key."""
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
        """Store ``code`` as the entry ``key``, unless it exceeds 32 MiB or the folder cannot be written to.

        The call also trims the folder with a probability proportional to the entry's size, such that all processes
        together trim it about once per 16 MiB stored.
        """
        data = _header(key, code) + code
        if len(data) > _MAX_OBJECT:
            return
        with contextlib.suppress(OSError):
            self._files.write(key, data)
        if secrets.randbelow(_BYTES_BETWEEN_SCANS) < len(data):
            self.trim()

    def claim(self, key: str) -> bool:
        """Claim the entry ``key`` for the caller.

        Returns True if no other process is making the entry: the caller must then make and ``release`` it. Two
        processes may withdraw the claim of a stopped one at the same time: then the second withdraws the claim of the
        first, and both make the entry.
        """
        try:
            if self._create_claim(key):
                return True
            if self._is_claimed(key):
                return False
            self.release(key)  # claim of a stopped process
            return self._create_claim(key)
        except OSError:
            return True  # the folder cannot be shared

    def _create_claim(self, key: str) -> bool:
        """Create the file of the claim to ``key``. Returns False if there is one."""
        try:
            self._files.create(f"{key}{_CLAIM}")
        except FileExistsError:
            return False
        return True

    def release(self, key: str) -> None:
        """Withdraw the claim to the entry ``key``, after it was stored or could not be made."""
        with contextlib.suppress(OSError):
            self._files.remove(f"{key}{_CLAIM}")

    def awaited(self, key: str) -> bytes | None:
        """Wait until the claim to the entry ``key`` is released or expires after ``_CLAIM_SECONDS``.

        Returns the entry, or None if none is stored by then.
        """
        while self._is_claimed(key):
            time.sleep(_POLL_SECONDS)
        return self.get(key)

    def _is_claimed(self, key: str) -> bool:
        """Return whether a process claimed the entry less than ``_CLAIM_SECONDS`` ago and has not released it."""
        try:
            return time.time() - self._files.modified(f"{key}{_CLAIM}") < _CLAIM_SECONDS
        except OSError:
            return False

    def trim(self, most: int = MAX_FOLDER) -> None:
        """Remove the least recently used files until half of ``most`` bytes is left, if there are more than ``most``.

        In any case it removes half-written files and claims older than an hour, which killed processes left.
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
