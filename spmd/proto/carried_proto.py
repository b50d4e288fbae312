"""Fields of HloModuleProto that no text has: shardings of a partitioned module, prefetches, profiles, device ids."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.carried import CarriedHeader, CrossProgramPrefetch
from spmd.proto.implied import Implied
from spmd.proto.schema.hlo import CrossProgramPrefetchProto, HloModuleProto
from spmd.proto.schema.xla_data import ComputationDeviceProto, DeviceAssignmentProto
from spmd.proto.sharding_proto import read_sharding, write_sharding


# ---- reading
def read_carried(proto: HloModuleProto, implied: Implied) -> CarriedHeader:
    output, devices = proto.spmd_output_sharding, proto.device_assignment
    return CarriedHeader(
        cross_program_prefetches=tuple(
            CrossProgramPrefetch(prefetch.parameter, prefetch.index, prefetch.offset)
            for prefetch in proto.cross_program_prefetches
        ),
        is_dynamic=proto.is_dynamic,
        output_sharding=None if output is None else read_sharding(output, implied),
        parameter_shardings=tuple(
            read_sharding(sharding, implied) for sharding in proto.spmd_parameters_shardings
        ),
        use_auto_spmd_partitioning=proto.use_auto_spmd_partitioning,
        profiles=proto.profile_info,
        device_type=proto.device_type,
        device_ids=() if devices is None else _device_ids(devices),
    )


def _device_ids(proto: DeviceAssignmentProto) -> tuple[tuple[int, ...], ...]:
    """Return the devices of each partition; empty if they are the usual ones or not listed at all."""
    rows = tuple(row.replica_device_ids for row in proto.computation_devices)
    if not rows:
        return ()
    replicas, partitions = proto.replica_count, proto.computation_count
    if len(rows) != partitions or any(len(row) != replicas for row in rows):
        raise HloParseError(
            f"the device assignment does not list {partitions} partitions x {replicas} replicas"
        )
    usual = all(row == usual_row(i, replicas, partitions) for i, row in enumerate(rows))
    return () if usual else rows


def usual_row(partition: int, replicas: int, partitions: int) -> tuple[int, ...]:
    """Return the devices of a partition's replicas in the default assignment: replica * partitions + partition."""
    return tuple(range(partition, replicas * partitions, partitions))


# ---- writing
def write_carried(proto: HloModuleProto, carried: CarriedHeader) -> None:
    """Write all carried fields but the device ids, which belong to the device assignment."""
    proto.cross_program_prefetches = [
        _write_prefetch(prefetch) for prefetch in carried.cross_program_prefetches
    ]
    proto.is_dynamic = carried.is_dynamic
    if carried.output_sharding is not None:
        proto.spmd_output_sharding = write_sharding(carried.output_sharding)
    proto.spmd_parameters_shardings = [write_sharding(s) for s in carried.parameter_shardings]
    proto.use_auto_spmd_partitioning = carried.use_auto_spmd_partitioning
    proto.profile_info = carried.profiles
    proto.device_type = carried.device_type


def _write_prefetch(prefetch: CrossProgramPrefetch) -> CrossProgramPrefetchProto:
    proto = CrossProgramPrefetchProto()
    proto.parameter = prefetch.parameter
    proto.index = prefetch.parameter_index
    proto.offset = prefetch.offset
    return proto


def write_device_assignment(
    replicas: int, partitions: int, ids: tuple[tuple[int, ...], ...]
) -> DeviceAssignmentProto:
    """Write the assignment ``ids`` if it has this number of replicas and partitions, else the default one."""
    fits = len(ids) == partitions and all(len(row) == replicas for row in ids)
    proto = DeviceAssignmentProto()
    proto.replica_count, proto.computation_count = replicas, partitions
    devices: list[ComputationDeviceProto] = []
    for partition in range(partitions):
        device = ComputationDeviceProto()
        usual = usual_row(partition, replicas, partitions)
        device.replica_device_ids = ids[partition] if fits else usual
        devices.append(device)
    proto.computation_devices = devices
    return proto
