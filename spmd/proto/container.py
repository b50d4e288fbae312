"""Find the HloModuleProto in what XLA writes: the module itself, or wrapped. None of the files says what it is."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.proto.schema.hlo import HloModuleProto, HloProto

#: HloSnapshot holds an HloProto, which holds the module.
_MAX_WRAPPERS = 2


def module_bytes(data: bytes) -> bytes:
    """The HloModuleProto in ``data``; HloParseError when there is none.

    HloProto, HloSnapshot and HloUnoptimizedSnapshot wrap it in their field 1, where a module has its name. A name does
    not read as a message with computations.
    """
    inner = data
    for _ in range(_MAX_WRAPPERS):
        wrapped = _field_one(inner)
        if wrapped is None:
            break
        if _is_module(wrapped):
            return wrapped
        inner = wrapped
    if HloModuleProto.computations.number not in HloModuleProto(data).raws:
        raise HloParseError("this is no HloModuleProto or HloProto: it holds no computations")
    return data


def _field_one(data: bytes) -> bytes | None:
    try:
        return HloProto(data).bytes_of(HloProto.hlo_module)
    except HloParseError:
        return None


def _is_module(data: bytes) -> bool:
    try:
        return HloModuleProto.computations.number in HloModuleProto(data).raws
    except HloParseError:
        return False
