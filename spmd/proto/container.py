"""Find the HloModuleProto in what XLA writes: the module itself, or wrapped. None of the files says what it is."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.lazy_dataclass import dataclass
from spmd.proto.schema.config import HloModuleConfigProto, HloModuleProtoWithConfig
from spmd.proto.schema.hlo import HloModuleProto, HloProto

#: HloSnapshot holds an HloProto, which holds the module.
_MAX_WRAPPERS = 2


@dataclass(frozen=True, slots=True)
class Found:
    """The bytes of the module, and its configuration where the wrapper has one."""

    module: bytes
    config: HloModuleConfigProto | None = None


def find_module(data: bytes) -> Found:
    """Return the HloModuleProto in ``data``. Raises HloParseError if there is none.

    HloProto, HloModuleProtoWithConfig, HloSnapshot and HloUnoptimizedSnapshot wrap it in their field 1, where a module
    has its name. A name does not read as a message with computations.
    """
    inner = data
    for _ in range(_MAX_WRAPPERS):
        wrapped = _field_one(inner)
        if wrapped is None:
            break
        if _is_module(wrapped):
            return Found(wrapped, _config(inner))
        inner = wrapped
    if HloModuleProto.computations.number not in HloModuleProto(data).raws:
        raise HloParseError("not an HloModuleProto or HloProto: it has no computations")
    return Found(data)


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


def _config(wrapper: bytes) -> HloModuleConfigProto | None:
    """Return the configuration, which is field 2 of a module with configuration. That field of a snapshot holds its
    inputs, which state no counts.
    """
    try:
        config = HloModuleProtoWithConfig(wrapper).config
    except HloParseError:
        return None
    return config if config is not None and config.num_partitions and config.replica_count else None
