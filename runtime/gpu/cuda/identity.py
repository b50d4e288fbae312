"""Identity of a GPU, independent of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from cupy.cuda import runtime

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GpuIdentity:
    """Model name of a GPU, and its PCI bus address and UUID (``unit``), which are equal in all processes of a node."""

    name: str
    unit: str


def identity_of(index: int) -> GpuIdentity:
    """Return the identity of GPU number ``index`` among those that this process sees."""
    properties = runtime.getDeviceProperties(index)
    uuid = bytes(properties.get("uuid", b""))[:16].hex()
    return GpuIdentity(properties["name"].decode(), f"{runtime.deviceGetPCIBusId(index)} {uuid}")
