"""Which GPU is which, whatever number a process sees it under."""

from __future__ import annotations

from dataclasses import dataclass

from cupy.cuda import runtime


@dataclass(frozen=True)
class GpuIdentity:
    """``unit``: its place on the bus and its UUID, the same for all processes of a node that have it."""

    name: str
    unit: str


def identity_of(index: int) -> GpuIdentity:
    """Of GPU number ``index`` of those that this process sees."""
    properties = runtime.getDeviceProperties(index)
    uuid = bytes(properties.get("uuid", b""))[:16].hex()
    return GpuIdentity(properties["name"].decode(), f"{runtime.deviceGetPCIBusId(index)} {uuid}")
