"""Units that multiply narrow types: the processor's tile unit (Intel AMX), if this process may use it, or vectors.

An instruction of the tile unit is a product of small matrices. Vector instructions multiply pairs of bf16 or groups of
four bytes, and sum the products in 32 bits (AVX-512 BF16 and VNNI).

The registers of the tile unit have 8 KiB, so Linux saves them only for processes that have requested it. The permission
holds for all present and later threads of the process.
"""

from __future__ import annotations

import ctypes
import os
from enum import Enum
from functools import cache

from runtime.codegen.llvm.jit import host_has

#: Numbers of the x86-64 system call arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


class Unit(Enum):
    """Unit that multiplies packed panels of narrow types: the tile unit, or vector instructions."""

    TILES = "tiles"
    VECTORS = "vectors"


def has_tile_unit() -> bool:
    """Return whether the processor has a tile unit and the system permits its use."""
    return _permitted()


def narrow_unit(*, is_float: bool) -> Unit | None:
    """Return the unit that multiplies bf16 (``is_float``) or bytes without conversion, or None if there is none."""
    if has_tile_unit():
        return Unit.TILES
    feature = "avx512bf16" if is_float else "avx512vnni"
    return Unit.VECTORS if host_has("avx512bw", "avx512vl", feature) else None


@cache
def _permitted() -> bool:
    """Request the permission to use the tile unit, once, and return whether it was given.

    It is not given if the processor or the system does not support it, or if a signal stack is too small.
    """
    if (os.uname().sysname, os.uname().machine) != ("Linux", "x86_64"):
        return False
    if not host_has("amx-tile", "amx-bf16", "amx-int8", "avx512bw", "avx512vnni"):
        return False
    try:
        system_call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    system_call.restype = ctypes.c_long
    arguments = (ctypes.c_long(one) for one in (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))
    return bool(system_call(*arguments) == 0)
