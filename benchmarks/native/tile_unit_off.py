"""A block in which kernels are bound as on a processor without units for narrow types, to compare and to test both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from runtime.cpu.kernels.gemm import tile_unit


@contextmanager
def without_tile_unit() -> Iterator[None]:
    """Bind kernels within the block without the tile unit and its vector substitute."""
    with (
        patch.object(tile_unit, "_permitted", lambda: False),
        patch.object(tile_unit, "host_has", lambda *_: False),
    ):
        yield
