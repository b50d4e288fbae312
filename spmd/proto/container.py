"""Tell HloProto, which wraps a module, from HloModuleProto itself. Neither says what it is."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.proto.schema.hlo import HloModuleProto, HloProto


def module_bytes(data: bytes) -> bytes:
    """The HloModuleProto in ``data``; HloParseError when there is none.

    Both begin with field 1: the module's name in one, the whole module in the other. A name does not read as a
    message with computations.
    """
    inner = _wrapped_module(data)
    if inner is not None:
        return inner
    if not _has_computations(data):
        raise HloParseError("this is no HloModuleProto or HloProto: it holds no computations")
    return data


def _wrapped_module(data: bytes) -> bytes | None:
    try:
        inner = HloProto(data).bytes_of(HloProto.hlo_module)
        return inner if inner is not None and _has_computations(inner) else None
    except HloParseError:
        return None


def _has_computations(data: bytes) -> bool:
    return HloModuleProto.computations.number in HloModuleProto(data).raws
