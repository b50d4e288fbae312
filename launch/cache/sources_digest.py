"""Digest of the project's files, by which what was made by other code is not taken for the same."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("spmd", "partitioner", "collectives", "runtime", "launch")
_SOURCES = (".py", ".json")


@functools.cache
def sources_digest() -> str:
    """Return a digest of names, sizes and times of the files: a copy that is being worked on keeps its version."""
    lines = []
    for name in _PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None, "it has an __init__"
        for entry in _files(Path(spec.origin).parent):
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
