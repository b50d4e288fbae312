"""Identity of a GPU, independent of the number under which a process sees it."""

from __future__ import annotations

from cupy.cuda import runtime

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GpuIdentity:
    """Identity of a GPU. ``unit``: bus address and UUID, equal for all processes of a node."""

    name: str
    unit: str


def identity_of(index: int) -> GpuIdentity:
    """Return the identity of GPU number ``index`` of those that this process sees."""
    properties = runtime.getDeviceProperties(index)
    uuid = bytes(properties.get("uuid", b""))[:16].hex()
    return GpuIdentity(properties["name"].decode(), f"{runtime.deviceGetPCIBusId(index)} {uuid}")
