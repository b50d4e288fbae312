"""Kernels for processors are known to the library even where a test binds a record without loading a device."""

import runtime.cpu.kernels  # noqa: F401 - it names the binders' modules
