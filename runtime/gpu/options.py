"""Options of programs on GPUs."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Options. ``graphs``: steps without host decisions are captured once and replayed. ``ranges``: every step has a
    profiler range with its name (NVTX). ``tf32``: f32 products are rounded to TF32 if the program allows it. ``cudnn``:
    cuDNN computes convolutions; without it the host does. ``f8``: tensor cores multiply in 8 bits, from sm_89 on.
    ``tuning_file``: keeps the fastest algorithm of each large
    product, measured where it is missing; empty: the library chooses.
    """

    graphs: bool = True
    ranges: bool = False
    tf32: bool = True
    cudnn: bool = True
    f8: bool = True
    tuning_file: str = ""


DEFAULT = GpuOptions()
