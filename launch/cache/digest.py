"""Digests, which ranks compare instead of the data, and by which caches find what was made of it."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

_LENGTH = 16


def digest_of(data: bytes) -> str:
    """Return enough of the SHA-256 digest to detect accidental differences."""
    return full_digest_of(data)[:_LENGTH]


def full_digest_of(data: bytes) -> str:
    """Return a digest that differs for different data (SHA-256)."""
    return hashlib.sha256(data).hexdigest()


# ---- sources: entries that other code has written do not match

_PACKAGES = ("spmd", "partitioner", "collectives", "runtime", "launch")

_SOURCES = (".py", ".json")
#: Folder of the packages.
_ROOT = Path(__file__).parents[2]


@functools.cache
def sources_digest() -> str:
    """Return a digest of names, sizes and times of the files: a copy that is being worked on keeps its version."""
    lines = []
    for name in _PACKAGES:
        for entry in _files(_ROOT / name):
            about = entry.stat()
            lines.append(f"{entry.path} {about.st_size} {about.st_mtime_ns}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.name.endswith(_SOURCES):
            yield entry
