"""What was compiled before, machine code and programs, kept on disk in a folder that only its owner can write.

Whoever can write there can have his code run by the folder's owner, so one that others own, or may write to, is not
used. Each file says how its contents digest, so half-written and damaged ones count as absent. Losing files, or all of
the folder, costs compile time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"spmd-object 1\n"
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
    folder: Path

    @staticmethod
    def opened(folder: Path) -> ObjectCache | None:
        """Of a folder that is made where there is none; None where it is not this user's alone, or cannot be made."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
        except OSError:
            return None
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not is_ours or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return None
        return ObjectCache(folder)

    def get(self, key: str) -> bytes | None:
        """None where it was never put, or its file is not whole."""
        try:
            descriptor = os.open(self.folder / key, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - opened above, not through a link
                data = file.read(_MAX_OBJECT + 1)
                os.utime(descriptor)
        except OSError:
            return None
        head = len(_MAGIC) + hashlib.sha256().digest_size
        code = data[head:]
        if len(data) > _MAX_OBJECT or data[:head] != _header(code):
            return None
        return code

    def put(self, key: str, code: bytes) -> None:
        """Keep it; a folder that cannot be written to is left as it is. Readers see all of the file or nothing.

        Now and then, the sooner the larger the entry, the folder is trimmed: it grows by what is put there.
        """
        header = _header(code)
        if len(header) + len(code) > _MAX_OBJECT:
            return
        target = self.folder / key
        half = target.with_name(f"{key}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            half.write_bytes(header + code)
            half.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                half.unlink()
        if secrets.randbelow(_BETWEEN_LOOKS) < len(header) + len(code):
            self.trim()

    def claim(self, key: str) -> bool:
        """Whether who asks is to make the entry, and to ``release`` it then: nobody else has claimed it of late."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(self._claim(key), flags, 0o600))
        except FileExistsError:
            if self._is_claimed(key):
                return False
            self.release(key)  # his who was stopped; that two make it does no harm
        except OSError:
            return True  # nothing can be shared there
        return True

    def release(self, key: str) -> None:
        """It has been put, or will not be."""
        with contextlib.suppress(OSError):
            self._claim(key).unlink()

    def awaited(self, key: str) -> bytes | None:
        """What somebody has claimed, once he releases it; None where he has not put it, or takes too long."""
        while self._is_claimed(key):
            time.sleep(_LOOK)
        return self.get(key)

    def _is_claimed(self, key: str) -> bool:
        """By a process that has neither ended nor been stopped, as far as time tells."""
        try:
            return time.time() - self._claim(key).lstat().st_mtime < _PATIENCE
        except OSError:
            return False

    def _claim(self, key: str) -> Path:
        return self.folder / f"{key}{_CLAIM}"

    def trim(self, most: int = MAX_FOLDER) -> None:
        """Down to half of ``most`` bytes where the folder has more; without what killed processes left half-written."""
        with contextlib.suppress(OSError):
            found = list(self._files())
            for about, path in found:
                if "." in path.name and about.st_mtime < time.time() - _LEFT_OVER:
                    path.unlink(missing_ok=True)
            total = sum(about.st_size for about, _ in found)
            if total <= most:
                return
            for about, path in sorted(found, key=lambda one: (one[0].st_mtime, one[1])):
                if total <= most // 2:
                    return
                path.unlink(missing_ok=True)
                total -= about.st_size

    def _files(self) -> Iterator[tuple[os.stat_result, Path]]:
        """Those that are not moved away meanwhile."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(), self.folder / entry.name


def _header(code: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(code).digest()
