"""Detection of a usable GPU, with an error that names the missing part."""

from __future__ import annotations

import importlib

from runtime.gpu.errors import NoGpuError

EXTRA = 'pip install "spmd-executor[gpu]"'
#: CUDA libraries that must be present, by CuPy's names. CuPy loads a library when its name is accessed.
_LIBRARIES = ("cublas",)


def require_gpu() -> int:
    """Return the number of GPUs that this process sees (at least 1).

    Raises NoGpuError, with the missing part and how to install it, if CuPy, a GPU or a CUDA library is missing.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise NoGpuError(
            f"a GPU needs CuPy, which cannot be imported ({error}): {EXTRA}"
        ) from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoGpuError(
            f"CuPy {cupy.__version__} finds no GPU: {error}. Does nvidia-smi name one, and a driver for CUDA 13?"
        ) from error
    if not count:
        raise NoGpuError(f"CuPy {cupy.__version__} finds no GPU: CUDA_VISIBLE_DEVICES hides all")
    libraries = importlib.import_module("cupy_backends.cuda.libs")
    for name in _LIBRARIES:
        try:
            getattr(libraries, name)
        except ImportError as error:
            raise NoGpuError(f"a library of CUDA is missing ({error}): {EXTRA}") from error
    return count
