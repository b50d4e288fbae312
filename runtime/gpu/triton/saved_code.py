"""Cubins of Triton kernels in saved executables: their keys, their bytes, and the checks of bytes from a file.

    threads of a block, 4 bytes | bytes of its shared memory, 4 bytes | the cubin, an ELF file

A key is a digest of the kernel without the GPU's architecture: plans know no GPU, but must know whether there is code.
Code is used only if the user trusts who wrote the file; the checks find files for other GPUs.
"""

from __future__ import annotations

import struct

from runtime.codegen.llvm.jit import host_jit
from runtime.codegen.llvm.object_cache import key_of
from runtime.gpu.codegen.launch import WARP
from runtime.gpu.triton.kernel import TritonKernel
from spmd.lazy_dataclass import dataclass

#: Largest shared memory of a block in bytes, by architecture, and on those that are not named.
_MOST_SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10, "sm_103": 227 << 10}
_LEAST_SHARED = 99 << 10
_MOST_THREADS = 1024
#: Largest cubin in bytes; those of attention have some hundred KiB.
_MOST_BYTES = 16 << 20
_HEAD = struct.Struct("<2I")
#: Start of an ELF file: magic, class (2: 64 bits), byte order (1: little-endian), version, OS ABI, its version,
#: padding; type, machine, version, places of entry, segments and sections, flags.
_ELF = struct.Struct("<4s5B7x2HI3QI")
_MAGIC, _CUDA_MACHINE = b"\x7fELF", 190
#: First version of the ABI whose flags have the architecture in bits 8 to 15; before they are bits 0 to 7.
_SHIFTED_ARCH = 8


@dataclass(frozen=True, slots=True)
class Cubin:
    """Compiled kernel.

    image: the module. entry: name of the kernel function in it. threads, shared_bytes: threads and shared memory of a
    block.
    """

    image: bytes
    entry: str
    threads: int
    shared_bytes: int


def most_shared(arch: str) -> int:
    """Return the largest shared memory of a block in bytes on a GPU of ``arch``, for example sm_90."""
    return _MOST_SHARED.get(arch, _LEAST_SHARED)


def code_key(kernel: TritonKernel) -> str:
    """Return the key of the compiled ``kernel``."""
    options = (kernel.warps, kernel.stages, *map(int, kernel.aligned))
    return key_of(("triton", kernel.entry, kernel.text, *kernel.signature, *map(str, options)))


def cubin_bytes(cubin: Cubin) -> bytes:
    """Return ``cubin`` as bytes for a file."""
    return _HEAD.pack(cubin.threads, cubin.shared_bytes) + cubin.image


def has_trusted_code(kernel: TritonKernel) -> bool:
    """Return whether a file that the user trusts has code of ``kernel``, for whatever GPU."""
    return code_key(kernel) in host_jit().trusted_code


def trusted_cubin(kernel: TritonKernel, arch: str) -> Cubin | None:
    """Return the code of ``kernel`` from a file that the user trusts.

    Returns None if there is none, or if it is no cubin for a GPU of ``arch``.
    """
    data = host_jit().trusted_code.get(code_key(kernel), b"")
    if not _HEAD.size + _ELF.size <= len(data) <= _MOST_BYTES:
        return None
    threads, shared = _HEAD.unpack_from(data)
    image = data[_HEAD.size :]
    if threads % WARP or not 0 < threads <= _MOST_THREADS or shared > most_shared(arch):
        return None
    return Cubin(image, kernel.entry, threads, shared) if cubin_arch(image) == arch else None


def cubin_arch(image: bytes) -> str | None:
    """Return the architecture of the cubin ``image``, for example sm_90, or None if it is no cubin."""
    if len(image) < _ELF.size:
        return None
    magic, bits, order, _, _, abi, _, machine, _, _, _, _, flags = _ELF.unpack_from(image)
    if magic != _MAGIC or (bits, order) != (2, 1) or machine != _CUDA_MACHINE:
        return None
    return f"sm_{flags >> 8 & 0xFF if abi >= _SHIFTED_ARCH else flags & 0xFF}"
