"""Compiled code, machine code and programs, kept on disk in a folder that only its owner can write.

Whoever can write there can have code run by the folder's owner: ``private_folder.py`` says which folders are used. Each
file holds a digest of its key and contents, so that files which are half-written, damaged or exchanged count as absent.
Losing files, or all of the folder, costs compile time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.codegen.llvm.private_folder import PrivateFolder

_MAGIC = b"spmd-object 2\n"
#: Of one entry, larger ones are not kept: a kernel's code has some KiB, a program with its constants some MiB at most.
_MAX_OBJECT = 32 << 20
#: Of the folder: beyond it the files longest unused go, until half is left.
MAX_FOLDER = 256 << 20
#: Bytes that are put there, by all processes, from one look at all of the folder to the next, on average: to look at
#: ten thousand files takes a tenth of a second.
_BETWEEN_LOOKS = 16 << 20
#: Seconds after which nobody is still writing a file.
_LEFT_OVER = 3600.0
#: Of the name of an empty file that says that somebody is making the entry; seconds from look to look at it, and after
#: which he is taken to have been stopped: LLVM makes a kernel in a tenth of a second.
_CLAIM, _LOOK, _PATIENCE = ".claim", 1e-3, 2.0


def key_of(parts: Iterable[str]) -> str:
    """A name for what ``parts`` determine."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class ObjectCache:
    """Entries of bytes, found by their keys, which are names of files (``key_of``)."""

    _files: PrivateFolder

    @staticmethod
    def opened(folder: Path) -> ObjectCache | None:
        """Open a folder, made where there is none; None where it is not this user's alone, or cannot be made."""
        files = PrivateFolder.open(folder)
        return None if files is None else ObjectCache(files)

    @property
    def folder(self) -> Path:
        return self._files.path

    def get(self, key: str) -> bytes | None:
        """Return the entry; None where it was never put, its file is not whole, or is another key's."""
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
        """Keep an entry; a folder that cannot be written to is left as it is.

        Now and then, the sooner the larger the entry, the folder is trimmed: it grows by what is put there.
        """
        data = _header(key, code) + code
        if len(data) > _MAX_OBJECT:
            return
        with contextlib.suppress(OSError):
            self._files.write(key, data)
        if secrets.randbelow(_BETWEEN_LOOKS) < len(data):
            self.trim()

    def claim(self, key: str) -> bool:
        """Return whether the caller is to make the entry, and to ``release`` it then: no process makes it now."""
        try:
            self._files.create(f"{key}{_CLAIM}")
        except FileExistsError:
            if self._is_claimed(key):
                return False
            self.release(key)  # of a process that was stopped; that two make it does no harm
        except OSError:
            return True  # nothing can be shared there
        return True

    def release(self, key: str) -> None:
        """Withdraw the claim: the entry has been put, or will not be."""
        with contextlib.suppress(OSError):
            self._files.remove(f"{key}{_CLAIM}")

    def awaited(self, key: str) -> bytes | None:
        """Wait for the process that has claimed the entry, then return it; None where it put none or is too slow."""
        while self._is_claimed(key):
            time.sleep(_LOOK)
        return self.get(key)

    def _is_claimed(self, key: str) -> bool:
        """Return whether a process makes the entry that has neither ended nor been stopped, as far as time tells."""
        try:
            return time.time() - self._files.modified(f"{key}{_CLAIM}") < _PATIENCE
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
    """Return what an entry's file begins with: the digest says which key's it is, and that it is whole."""
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + code).digest()
