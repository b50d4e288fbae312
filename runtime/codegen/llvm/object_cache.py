"""Compiled code, machine code and programs, cached on disk in a folder that only its owner can write.

A user who can write there can make the folder's owner run code: ``PrivateFolder`` decides which folders are used.
Each file holds a digest of its key and contents, so that half-written, damaged or exchanged files count as absent.
Losing files, or all of the folder, only costs compile time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# ---- folder of files that only this user can have written, accessed by its descriptor only
#
# The owner of a parent folder could otherwise move it away and put another one in its place. Each folder on the path
# is therefore opened relative to the previous one and must belong to root or to this user. If others may write to it,
# it must be sticky, as /tmp is, so that they cannot rename what is not theirs. Symbolic links on the path are
# followed under the same rules. Files are opened relative to the folder's descriptor, never by a path.


_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Flags that suffice to open files in a folder, even if the user may not list it (mode 0711).
_WAY = _FOLDER | os.O_PATH
#: A FIFO in place of a file must not block the reader.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: Most symbolic links that are followed on the path to a folder, as in Linux.
_MAX_LINKS = 40


@dataclass(frozen=True)
class PrivateFolder:
    """Open folder with mode 0700 of this user. All names are names of files in it, without a slash.

    ``path`` is for messages and tests. Every method but ``open`` raises OSError if the system refuses.
    """

    path: Path
    _descriptor: int = field(compare=False)

    @staticmethod
    def open(path: Path) -> PrivateFolder | None:
        """Open the folder, and create it if missing; None if others could exchange or write its files."""
        try:
            descriptor = _descend(path)
        except OSError:
            return None
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.close(descriptor)
            return None
        folder = PrivateFolder(path, descriptor)
        weakref.finalize(folder, os.close, descriptor).atexit = False  # threads may still read then
        return folder

    def read(self, name: str, most: int) -> bytes | None:
        """Return the file's contents and mark it as used now; None if it has more than ``most`` bytes.

        A file that is not a regular one of this user, or that others may write to, counts as too large.
        """
        descriptor = os.open(name, _READ, dir_fd=self._descriptor)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - opened above, relative to the folder
            about = os.fstat(descriptor)
            is_ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
            if not is_ours or about.st_mode & _OTHERS_WRITE or about.st_size > most:
                return None
            data = file.read(most + 1)
            os.utime(descriptor)
        return data if len(data) <= most else None

    def write(self, name: str, data: bytes) -> None:
        """Replace the file atomically: readers see all of ``data``, the previous contents, or nothing."""
        half = f"{name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            descriptor = os.open(half, _CREATE, 0o600, dir_fd=self._descriptor)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - opened above, relative to the folder
                file.write(data)
            os.replace(half, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(half)
            raise

    def create(self, name: str) -> None:
        """Create an empty file. Raises FileExistsError if there is one of that name."""
        os.close(os.open(name, _CREATE, 0o600, dir_fd=self._descriptor))

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def modified(self, name: str) -> float:
        """Return the time of the file's last change, in seconds since the epoch."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mtime

    def files(self) -> Iterator[tuple[os.stat_result, str]]:
        """Yield state and name of each file that is not removed meanwhile."""
        # Open a separate descriptor: the position in a folder belongs to the descriptor, which
        # threads share.
        descriptor = os.open(".", _FOLDER | os.O_RDONLY, dir_fd=self._descriptor)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False), entry.name
        finally:
            os.close(descriptor)


def _descend(path: Path) -> int:
    """Open a folder through folders that others cannot change, and return its descriptor.

    Raises OSError if there is no such path. Missing folders are created with mode 0700; the last name must not be a
    symbolic link.
    """
    pending = list(reversed(path.absolute().parts[1:]))
    links = 0
    at = os.open("/", _WAY)
    try:
        while pending:
            _require_unchangeable(at)
            name = pending.pop()
            target = _link_target(at, name) if pending else None
            if target is None:
                below = _open_or_make(at, name)
            elif (links := links + 1) > _MAX_LINKS:
                raise OSError(f"{path}: too many symbolic links")
            else:
                pending += [part for part in reversed(target.parts) if part != "/"]
                below = os.open("/" if target.is_absolute() else ".", _WAY, dir_fd=at)
            os.close(at)
            at = below
    except OSError:
        os.close(at)
        raise
    return at


def _require_unchangeable(descriptor: int) -> None:
    """Raise PermissionError if another user than root may rename the folder's contents."""
    about = os.fstat(descriptor)
    if not _is_trusted(about) or (
        about.st_mode & _OTHERS_WRITE and not about.st_mode & stat.S_ISVTX
    ):
        raise PermissionError("others may exchange what lies in the folder")


def _is_trusted(about: os.stat_result) -> bool:
    return about.st_uid in (0, os.geteuid())


def _link_target(at: int, name: str) -> Path | None:
    """Return the target of a symbolic link; None for anything else. Raises PermissionError for another user's link."""
    try:
        about = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(about.st_mode):
        return None
    if not _is_trusted(about):
        raise PermissionError("another user's symbolic link")
    return Path(os.readlink(name, dir_fd=at))


def _open_or_make(at: int, name: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _WAY, dir_fd=at)
    with contextlib.suppress(FileExistsError):  # another process makes it at the same time
        os.mkdir(name, 0o700, dir_fd=at)
    return os.open(name, _WAY, dir_fd=at)


# ---- entries


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
