"""How a program runs on GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """``graphs``: stretches without decisions of the host are captured once and replayed. ``ranges``: name every step
    in profilers' pictures (NVTX). ``tf32``: f32 products are rounded to TF32 where the program allows it."""

    graphs: bool = True
    ranges: bool = False
    tf32: bool = True


DEFAULT = GpuOptions()
