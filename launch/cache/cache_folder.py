"""Folder of machine code and programs: the user's cache folder, unless the environment names another."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

from launch.cache import PROGRAM_CACHE_VARIABLE
from launch.cache.digest import sources_digest
from runtime.codegen.llvm.jit import host_jit
from runtime.codegen.llvm.object_cache import ObjectCache

#: An absolute path, or "off".
VARIABLE = "SPMD_OBJECT_CACHE"
#: "1": names of compiled functions are written for Linux perf.
PERF_VARIABLE = "SPMD_PERF_MAP"


def object_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder SPMD_OBJECT_CACHE, else spmd-executor/objects in XDG_CACHE_HOME or ~/.cache. Returns None if
    there is none.
    """
    value = environment.get(VARIABLE, "")
    if value:
        return Path(value) if Path(value).is_absolute() else None
    cache = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    if Path(cache).is_absolute():
        return Path(cache) / "spmd-executor" / "objects"
    return Path(home) / ".cache" / "spmd-executor" / "objects" if Path(home).is_absolute() else None


def find_code_by_sources() -> None:
    """Find code without its IR if the project's sources are those that wrote it, unless SPMD_PROGRAM_CACHE=off."""
    if os.environ.get(PROGRAM_CACHE_VARIABLE) != "off":
        host_jit().sources = sources_digest()


@functools.cache
def keep_objects() -> ObjectCache | None:
    """Make this process look for machine code in the cache folder, and store there what it compiles. Returns the cache.

    Returns None if there is no such folder, or if other users can write to it.
    """
    folder = object_folder()
    if os.environ.get(PERF_VARIABLE) == "1":
        from runtime.codegen.llvm.perf_map import PerfMap  # deferred: only for profiled runs

        host_jit().perf_map = PerfMap()
    find_code_by_sources()
    host_jit().cache = None if folder is None else ObjectCache.opened(folder)
    return host_jit().cache
