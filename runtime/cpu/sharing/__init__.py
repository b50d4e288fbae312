"""Sharing one kernel's work among threads: which kernels can be cut into pieces, and when that pays."""

from runtime.cpu.sharing import convolutions, indexed, loops, products, sorts  # noqa: F401 - they register how to cut
from runtime.cpu.sharing.pieces import bind_shared

__all__ = ["bind_shared"]
