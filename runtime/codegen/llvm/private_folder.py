"""Folder of files that only this user can have written, accessed by its descriptor only.

The owner of a parent folder could otherwise move it away and put another one in its place. Each folder on the path is
therefore opened relative to the previous one and must belong to root or to this user. A folder that other users may
write to must be sticky, as /tmp is, so that they cannot rename files that they do not own. Symbolic links on the path
are followed under the same rules. Files are opened relative to the folder's descriptor, never by a path.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import weakref
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from spmd.lazy_dataclass import dataclass

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
    """Open folder that this user owns, without any permission for other users.

    ``name`` is always the name of a file in the folder, without a slash. ``path`` is for messages and tests. Every
    method but ``open`` raises OSError if the system call fails.
    """

    path: Path
    _descriptor: int = field(compare=False)

    @staticmethod
    def open(path: Path) -> PrivateFolder | None:
        """Open the folder at ``path``, which is created if missing.

        Returns None if the folder cannot be opened or created, or if other users could exchange, read or write its
        files.
        """
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
        """Return the contents of a file of at most ``most`` bytes, and set its times to now, since it was used.

        Returns None if the file is larger, is not a regular file of this user, or may be written to by other users.
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
        """Create or replace the file atomically: readers see all of ``data``, the previous contents, or no file."""
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
        """Remove the file."""
        os.unlink(name, dir_fd=self._descriptor)

    def modified(self, name: str) -> float:
        """Return the time of the file's last change, in seconds since the epoch."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mtime

    def files(self) -> Iterator[tuple[os.stat_result, str]]:
        """Yield the status and the name of each file, except files that are removed meanwhile."""
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
    """Open the folder at ``path`` and return its descriptor. The caller must close it.

    Missing folders are created with mode 0700. Raises OSError if a folder cannot be opened or created, if other users
    could rename or replace an entry of a folder on the path, or if the last name is a symbolic link.
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
    """Raise PermissionError if a user other than root and this one may rename or replace entries of the folder."""
    about = os.fstat(descriptor)
    if not _is_trusted(about) or (
        about.st_mode & _OTHERS_WRITE and not about.st_mode & stat.S_ISVTX
    ):
        raise PermissionError("others may exchange what lies in the folder")


def _is_trusted(about: os.stat_result) -> bool:
    """Return whether root or this user owns the file."""
    return about.st_uid in (0, os.geteuid())


def _link_target(at: int, name: str) -> Path | None:
    """Return the target of the symbolic link ``name`` in folder ``at``; None if it is no symbolic link or is absent.

    Raises PermissionError if neither root nor this user owns the link.
    """
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
    """Open the folder ``name`` in folder ``at``, which is created if missing, and return its descriptor."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _WAY, dir_fd=at)
    with contextlib.suppress(FileExistsError):  # another process makes it at the same time
        os.mkdir(name, 0o700, dir_fd=at)
    return os.open(name, _WAY, dir_fd=at)
