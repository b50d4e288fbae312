"""Modules loaded on one GPU, once for all devices of this process. Errors include the log of CUDA's compiler."""

from __future__ import annotations

import ctypes
from typing import Any

from runtime.gpu.errors import PtxError

#: CUjit_option of cuda.h: buffer for the compiler's errors, and its size in bytes.
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
_LOG_BYTES = 16 << 10
_POINTER = ctypes.c_void_p


def load_cuda() -> Any:
    """Return the library of the CUDA driver interface. Raises OSError if it is not installed."""
    return ctypes.CDLL("libcuda.so.1")


class CudaModules:
    """Handles of loaded modules by their images: PTX texts and cubins. Modules are never unloaded.

    Callers must hold the capture lock of the GPU.
    """

    def __init__(self, library: Any) -> None:
        """Create an empty collection. ``library`` is the CUDA driver's library, which has cuModuleLoadDataEx."""
        self._load = library.cuModuleLoadDataEx
        self._load.argtypes = (ctypes.POINTER(_POINTER), ctypes.c_char_p, ctypes.c_uint) + 2 * (
            ctypes.c_void_p,
        )
        self._load.restype = ctypes.c_int
        self._handles: dict[bytes, int] = {}

    def handle(self, image: bytes) -> int:
        """Return the handle of the module ``image``, loading it the first time.

        Raises PtxError, with the log of CUDA's compiler, if CUDA rejects the image.
        """
        if image not in self._handles:
            self._handles[image] = self._loaded(image)
        return self._handles[image]

    def _loaded(self, image: bytes) -> int:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (_POINTER * 2)(ctypes.addressof(log), _LOG_BYTES)
        handle = _POINTER()
        status = self._load(ctypes.byref(handle), image, len(options), options, values)
        if status:
            said = log.value.decode(errors="replace").strip()
            raise PtxError(
                f"CUDA refuses a module (error {status}): {said or 'it does not say why'}"
            )
        assert handle.value is not None
        return handle.value
