"""Fields of a module's proto that have no text form: they are carried from proto to proto, and nothing here reads
them."""

from __future__ import annotations

from dataclasses import dataclass

from spmd.shape import ShapeIndex
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class CrossProgramPrefetch:
    """A leaf of an entry parameter that the program before this one copies to ``offset`` of the fast memory."""

    parameter: int
    parameter_index: ShapeIndex = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CarriedHeader:
    """Fields of HloModuleProto, by their names there where none is given.

    ``output_sharding`` and ``parameter_shardings`` (spmd_..) are what XLA's partitioned modules keep of the shardings
    that they had. ``profiles`` (profile_info) are messages as they came. ``device_ids`` (device_assignment) are the
    devices of each partition, replica by replica; empty where they are the usual replica * partitions + partition.
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
