"""How a program runs on GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """``graphs``: stretches without decisions of the host are captured once and replayed. ``ranges``: name every step
    in profilers' pictures (NVTX)."""

    graphs: bool = True
    ranges: bool = False


DEFAULT = GpuOptions()
