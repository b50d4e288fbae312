"""Handles of CUDA's libraries, which end with the objects that own them."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from runtime.gpu.captures import CaptureLock


class _Handle:
    """Handle whose last reference destroys it."""

    def __init__(self, destroy: Callable[[], object]) -> None:
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy()


def destroy_after(owner: object, captures: CaptureLock, destroy: Callable[[], object]) -> None:
    """Have ``destroy`` called after ``owner`` is garbage-collected, as soon as no thread captures a graph on the GPU.

    Libraries wait for the whole GPU when they destroy a handle (cublasDestroy, cudnnDestroy), which invalidates
    captures. At the end of the process handles are not destroyed.
    """
    weakref.finalize(owner, captures.free, _Handle(destroy)).atexit = False
