"""Fields of HloModuleProto besides computations: entry layout, aliases, donors, attributes, device counts.

The module's configuration (sharding propagation to parameters, ...) is not part of the proto (module_config.py); the
table of recovered values has a file of its own (recovery_table.py). In a proto only the device assignment states the
numbers of replicas and partitions, so one is written for a text that states them.
"""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.module import BufferDonor, EntryLayout, HloModule, InputOutputAlias
from spmd.limits import MAX_COUNT, MAX_DEVICES
from spmd.proto.annotations_proto import read_frontend_attributes, write_frontend_attributes
from spmd.proto.carried_proto import read_carried, write_carried, write_device_assignment
from spmd.proto.enums import MAY_ALIAS, MUST_ALIAS, UNDEFINED_ALIAS
from spmd.proto.implied import Implied
from spmd.proto.schema.hlo import (
    AliasEntryProto,
    BufferDonorEntryProto,
    HloBufferDonorProto,
    HloInputOutputAliasProto,
    HloModuleProto,
)
from spmd.proto.schema.xla_data import DeviceAssignmentProto, ProgramShapeProto
from spmd.proto.shape_proto import read_shape, write_shape
from spmd.proto.stack_frames import read_stack_frames, write_stack_frames
from spmd.text.names import sanitized


# ---- reading
def read_header(proto: HloModuleProto, implied: Implied) -> HloModule:
    """Return the module without its computations."""
    if not proto.name:
        raise HloParseError("the module has no name")
    module = HloModule(sanitized(proto.name))
    if (program := proto.host_program_shape) is not None:
        parameters = tuple(map(read_shape, program.parameters))
        module.entry_layout = EntryLayout(parameters, read_shape(program.result))
    if (aliases := proto.input_output_alias) is not None:
        entries = [entry for entry in aliases.entries if entry.kind != UNDEFINED_ALIAS]
        module.input_output_alias = tuple(map(_read_alias, entries))
    if (donors := proto.buffer_donor) is not None:
        module.buffer_donors = tuple(
            BufferDonor(entry.parameter_number, entry.parameter_shape_index)
            for entry in donors.entries
        )
    if (frontend := proto.frontend_attributes) is not None:
        module.frontend_attributes = read_frontend_attributes(frontend)
    if (devices := proto.device_assignment) is not None:
        _read_counts(module, devices)
    if (frames := proto.stack_frame_index) is not None:
        module.file_tables = read_stack_frames(frames)
    module.carried = read_carried(proto, implied)
    return module


def _read_alias(entry: AliasEntryProto) -> InputOutputAlias:
    if entry.kind not in (MAY_ALIAS, MUST_ALIAS):
        raise HloParseError(f"unknown alias kind {entry.kind}")
    return InputOutputAlias(
        entry.output_shape_index,
        entry.parameter_number,
        entry.parameter_shape_index,
        entry.kind == MUST_ALIAS,
    )


def _read_counts(module: HloModule, devices: DeviceAssignmentProto) -> None:
    replicas, partitions = devices.replica_count, devices.computation_count
    if not (1 <= replicas <= MAX_COUNT and 1 <= partitions <= MAX_COUNT):
        raise HloParseError(f"a device assignment of {replicas} replicas x {partitions} partitions")
    module.replica_count, module.num_partitions = replicas, partitions
    module.states_partitions = True


# ---- writing
def write_header(proto: HloModuleProto, module: HloModule) -> None:
    """Write everything but the computations."""
    proto.name = module.name
    proto.host_program_shape = _program_shape(module)
    if module.input_output_alias:
        aliases = HloInputOutputAliasProto()
        aliases.entries = [_write_alias(alias) for alias in module.input_output_alias]
        proto.input_output_alias = aliases
    if module.buffer_donors:
        donors = HloBufferDonorProto()
        donors.entries = [_write_donor(donor) for donor in module.buffer_donors]
        proto.buffer_donor = donors
    if module.frontend_attributes:
        proto.frontend_attributes = write_frontend_attributes(module.frontend_attributes)
    if module.states_partitions or module.replica_count > 1 or module.num_partitions > 1:
        proto.device_assignment = _write_devices(module)
    if module.file_tables:
        proto.stack_frame_index = write_stack_frames(module.file_tables)
    write_carried(proto, module.carried)


def _program_shape(module: HloModule) -> ProgramShapeProto:
    """Return the program shape, without which XLA reads no module. If the text does not state it, it is the entry's
    own.
    """
    entry, layout = module.entry, module.entry_layout
    shapes = tuple(p.shape for p in entry.parameters) if layout is None else layout.parameters
    proto = ProgramShapeProto()
    proto.parameters = [write_shape(shape) for shape in shapes]
    proto.result = write_shape(entry.root.shape if layout is None else layout.result)
    proto.parameter_names = tuple(f"p{i}" for i in range(len(shapes)))
    return proto


def _write_alias(alias: InputOutputAlias) -> AliasEntryProto:
    entry = AliasEntryProto()
    entry.output_shape_index = alias.output_index
    entry.parameter_number = alias.parameter
    entry.parameter_shape_index = alias.parameter_index
    entry.kind = MUST_ALIAS if alias.must_alias else MAY_ALIAS
    return entry


def _write_donor(donor: BufferDonor) -> BufferDonorEntryProto:
    entry = BufferDonorEntryProto()
    entry.parameter_number = donor.parameter
    entry.parameter_shape_index = donor.parameter_index
    return entry


def _write_devices(module: HloModule) -> DeviceAssignmentProto:
    replicas, partitions = module.replica_count, module.num_partitions
    if replicas * partitions > MAX_DEVICES:
        raise HloParseError(
            f"the proto lists devices one by one: {replicas * partitions} are more than {MAX_DEVICES}"
        )
    return write_device_assignment(replicas, partitions, module.carried.device_ids)
