"""Options of programs on GPUs."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Options of programs on GPUs.

    graphs: consecutive commands without host decisions are captured once as a CUDA graph and replayed.
    ranges: every command runs in a profiler range (NVTX) with its name.
    tf32: operands of f32 products and convolutions may be rounded to TF32 if the program allows it.
    cudnn: cuDNN computes convolutions; otherwise the host does.
    epilogues: a library computes bias, activation, scale and addend of a product in the call of the product.
    f8: tensor cores multiply f8 operands directly, on GPUs from sm_89 on.
    triton: Triton is installed. Without it, the host computes ragged products whose code no saved executable has.
    tuning_file: path of a file with the fastest algorithm of each large product. If all devices are in this process,
    missing entries are measured and added. Empty: the library chooses the algorithms.
    """

    graphs: bool = True
    ranges: bool = False
    tf32: bool = True
    cudnn: bool = True
    epilogues: bool = True
    f8: bool = True
    triton: bool = True
    tuning_file: str = ""


DEFAULT = GpuOptions()
