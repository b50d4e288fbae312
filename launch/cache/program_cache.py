"""Cache of compiled programs, in the folder of machine code (cache_folder.py), by a key of all that determines them.

An entry is what compiling warned of and a saved executable (runtime/saved.py), whose thunks are used as they are, since
only the user writes there. One that is damaged, or does not load, counts as absent: it is compiled afresh, which
gives the same.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping

from launch.cache import PROGRAM_CACHE_VARIABLE
from launch.cache.cache_folder import keep_objects
from launch.cache.digest import sources_digest
from launch.job import versions
from launch.options import CompileOptions
from launch.report.environment import installed_versions
from runtime.codegen.llvm.jit import host_jit
from runtime.codegen.llvm.object_cache import ObjectCache, key_of
from runtime.executable import Executable
from runtime.saved_program import load_bytes
from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass

#: Other packages that convert bytes to a module.
_READERS = ("jaxlib",)
#: Largest length of the first line of an entry, which states the bytes of its warnings.
_MAX_HEAD = 32


@dataclass(frozen=True)
class Entry:
    """An entry of the cache: the saved executable, and the warnings of its compilation."""

    data: bytes
    warning: str


@dataclass(frozen=True)
class ProgramCache:
    store: ObjectCache

    def get(self, key: str) -> Entry | None:
        found = self.store.get(key)
        return None if found is None else _unpacked(found)

    def load(self, key: str) -> tuple[Executable, Entry] | None:
        """Return the program of that key, and the entry that it was loaded from; None if there is none or it is
        damaged.
        """
        entry = self.get(key)
        if entry is None:
            return None
        try:
            return load_bytes(entry.data, "the cached program", trusted=True), entry
        except SpmdError:
            return None

    def put(self, key: str, entry: Entry) -> None:
        text = entry.warning.encode()
        self.store.put(key, b"%d\n" % len(text) + text + entry.data)


def _unpacked(data: bytes) -> Entry | None:
    head, line, _ = data[:_MAX_HEAD].partition(b"\n")
    if not line or not head.isdigit():
        return None
    first = len(head) + 1
    size = int(head)
    text = data[first : first + size]
    return Entry(data[first + size :], text.decode(errors="replace"))


def program_cache(environment: Mapping[str, str] = os.environ) -> ProgramCache | None:
    """Return the cache. Returns None if programs are not cached, or there is no folder that only the
    user can write to.
    """
    if environment.get(PROGRAM_CACHE_VARIABLE) == "off":
        return None
    store = keep_objects()
    return None if store is None else ProgramCache(store)


def program_key(source: str, devices: int | None, options: CompileOptions) -> str:
    """Return the key of a program. ``source``: a digest of the module's file or of its proto."""
    return key_of(
        ("program", source, str(devices), str(options), json.dumps(_compiler(), sort_keys=True))
    )


@functools.cache
def _compiler() -> dict[str, str]:
    """Return what a program depends on besides the module and the options."""
    processor = " ".join(host_jit().made_by)
    system = os.uname()  # the platform module would start a process for more details
    return {
        **versions(),
        **installed_versions(_READERS),
        "processor": processor,
        "platform": " ".join((system.sysname, system.release, system.machine)),
        "sources": sources_digest(),
    }
