"""Fields of a module's proto that have no text form: they are carried from proto to proto and not read."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass
from spmd.shape import ShapeIndex
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class CrossProgramPrefetch:
    """A leaf of an entry parameter that the preceding program copies to ``offset`` of the fast memory."""

    parameter: int
    parameter_index: ShapeIndex = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CarriedHeader:
    """Fields of HloModuleProto, under their proto names unless stated.

    ``output_sharding`` and ``parameter_shardings`` (spmd_..) are the former shardings that XLA keeps in partitioned
    modules. ``profiles`` (profile_info) are raw messages. ``device_ids`` (device_assignment) are the devices of each
    partition, replica by replica; empty if they are the usual replica * partitions + partition.
    """

    cross_program_prefetches: tuple[CrossProgramPrefetch, ...] = ()
    is_dynamic: bool = False
    output_sharding: HloSharding | None = None
    parameter_shardings: tuple[HloSharding, ...] = ()
    use_auto_spmd_partitioning: bool = False
    profiles: tuple[bytes, ...] = ()
    device_type: str = ""
    device_ids: tuple[tuple[int, ...], ...] = ()


NOTHING_CARRIED = CarriedHeader()
