"""Names of the back ends that run a program, and the note on what they leave to the processor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from launch.ranks.messages import report_note
from spmd.errors import UnsupportedError

if TYPE_CHECKING:
    from runtime.executable import Executable

BACKENDS = ("cpu", "gpu")

ATTENTION_VARIABLE = "SPMD_GPU_ATTENTION"
"""``off``: score matrices of attention are in memory, and libraries compute its products."""


def require_backend(backend: str) -> None:
    """Raise UnsupportedError if there is no back end of this name."""
    if backend not in BACKENDS:
        raise UnsupportedError(f"no {backend!r} back end; there is {', '.join(BACKENDS)}")


def fuses_attention(backend: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether programs for a GPU are compiled with ``attention_fusion``.

    On a GPU of this machine (``backend`` gpu) that needs Triton. A program for another machine is compiled with it.
    """
    if environment.get(ATTENTION_VARIABLE) == "off":
        return False
    return backend != "gpu" or find_spec("triton") is not None


def note_hosted(executable: Executable) -> None:
    """Report the kernels that the processor computes for the GPU, which is correct but slow."""
    kernels = executable.kernel_report
    if kernels is None or not kernels.hosted:
        return
    report_note(str(kernels))
    for kind, what, package, library in (
        ("Convolution", "convolutions", "cudnn", "cuDNN"),
        ("RaggedDot", "ragged products", "triton", "Triton"),
    ):
        if any(kind in hosted for hosted, _ in kernels.hosted) and find_spec(package) is None:
            from runtime.gpu.availability import EXTRA

            report_note(f"{library} computes {what} on the GPU: {EXTRA}")
