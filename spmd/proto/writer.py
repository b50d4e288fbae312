"""Write a module as HloModuleProto. The driver of the proto writers; XLA reads what it writes."""

from __future__ import annotations

from spmd.errors import HloParseError, SpmdError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.proto.annotations_proto import write_annotations
from spmd.proto.attrs_proto import ATTRS_PROTO
from spmd.proto.header import write_header
from spmd.proto.module_config import write_config
from spmd.proto.recovery_table import RECOVERY_TABLES, write_recovery_table
from spmd.proto.schema.config import HloModuleProtoWithConfig
from spmd.proto.schema.hlo import (
    HloComputationProto,
    HloInstructionProto,
    HloModuleProto,
    HloProto,
    HloScheduleProto,
    InstructionSequenceProto,
    SequenceEntry,
)
from spmd.proto.schema.xla_data import ProgramShapeProto, ShapeProto
from spmd.proto.shape_proto import write_shape
from spmd.proto.sharding_proto import write_sharding
from spmd.shape import Shape


def serialize(module: HloModule) -> bytes:
    """Return the module as a serialized HloModuleProto.

    Raises HloParseError, with the instruction's name, if the proto cannot express something.
    """
    return bytes(_ModuleWriter(module).write())


def serialize_hlo_proto(module: HloModule) -> bytes:
    """Return the module as a serialized HloProto, as ``--xla_dump_hlo_as_proto`` writes it."""
    proto = HloProto()
    proto.hlo_module = _ModuleWriter(module).write()
    return bytes(proto)


def serialize_with_config(module: HloModule) -> bytes:
    """Return the module as a serialized HloModuleProtoWithConfig: with the partitions and propagation flags of its
    header.

    PJRT calls this format ``hlo_with_config``.
    """
    proto = HloModuleProtoWithConfig()
    written = _ModuleWriter(module).write()
    proto.hlo_module = written
    proto.config = write_config(module, written.host_program_shape)
    return bytes(proto)


class _ModuleWriter:
    """Writer of one module. Computations are numbered from 1, instructions from 0 in each: id = computation << 32 |
    instruction.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        order = _callees_first(module)
        self.ids = {computation: number for number, computation in enumerate(order, 1)}
        self.shapes: dict[Shape, ShapeProto] = {}

    def write(self) -> HloModuleProto:
        module = self.module
        proto = HloModuleProto()
        write_header(proto, module)
        for name, text in module.extra_header:
            if name in RECOVERY_TABLES:
                proto.original_value_recovery_table = write_recovery_table(
                    text, lambda recovery: _ModuleWriter(recovery).write()
                )
        proto.entry_computation_name = module.entry.name
        proto.entry_computation_id = self.ids[module.entry]
        fused = {
            callee
            for x in module.all_instructions()
            if x.opcode is Opcode.FUSION
            for callee in x.called_computations
        }
        computations: list[HloComputationProto] = []
        sequences: list[SequenceEntry] = []
        for computation in self.ids:
            order = computation.post_order()
            numbers = {x: self.ids[computation] << 32 | i for i, x in enumerate(order)}
            written = self._computation(computation, numbers)
            written.is_fusion_computation = computation in fused
            computations.append(written)
            if module.stage is Stage.SCHEDULED and computation not in fused:
                sequences.append(_sequence(self.ids[computation], computation, numbers))
        proto.computations = computations
        if sequences:
            schedule = HloScheduleProto()
            schedule.sequences = sequences
            proto.schedule = schedule
        return proto

    def _computation(
        self, computation: HloComputation, numbers: dict[HloInstruction, int]
    ) -> HloComputationProto:
        proto = HloComputationProto()
        proto.name = computation.name
        proto.id = self.ids[computation]
        proto.root_id = numbers[computation.root]
        proto.execution_thread = computation.execution_thread
        program = ProgramShapeProto()
        program.parameters = [self._shape(p.shape) for p in computation.parameters]
        program.result = self._shape(computation.root.shape)
        program.parameter_names = tuple(p.name for p in computation.parameters)
        proto.program_shape = program
        proto.instructions = [self._instruction(x, numbers) for x in numbers]
        return proto

    def _instruction(
        self, x: HloInstruction, numbers: dict[HloInstruction, int]
    ) -> HloInstructionProto:
        proto = HloInstructionProto()
        proto.name = x.name
        proto.opcode = x.opcode.value
        proto.id = numbers[x]
        proto.shape = self._shape(x.shape)
        proto.operand_ids = tuple(numbers[operand] for operand in x.operands)
        proto.control_predecessor_ids = tuple(numbers[p] for p in x.control_predecessors)
        record = ATTRS_PROTO[x.opcode]
        callees = tuple(self.ids[callee] for callee in x.called_computations)
        proto.called_computation_ids = callees[::-1] if record.swaps_callees else callees
        try:
            record.write(proto, x)
            if x.sharding is not None:
                proto.sharding = write_sharding(x.sharding)
            write_annotations(proto, x.annotations)
        except SpmdError as error:
            raise HloParseError(f"instruction {x.name!r}: {error}") from error
        return proto

    def _shape(self, shape: Shape) -> ShapeProto:
        proto = self.shapes.get(shape)
        if proto is None:
            proto = self.shapes[shape] = write_shape(shape)
        return proto


def _callees_first(module: HloModule) -> list[HloComputation]:
    """Return the computations in an order in which callees precede callers, which readers require: the stored order if
    it is one.
    """
    placed: dict[HloComputation, None] = {}
    for computation in module.computations:
        for x in computation.instructions:
            if any(callee not in placed for callee in x.called_computations):
                return _reordered(module)
        placed[computation] = None
    return list(placed)


def _reordered(module: HloModule) -> list[HloComputation]:
    """Return callees before callers, then the computations that the entry does not call."""
    return list(dict.fromkeys((*module.computations_post_order(), *module.computations)))


def _sequence(
    number: int, computation: HloComputation, numbers: dict[HloInstruction, int]
) -> SequenceEntry:
    sequence = InstructionSequenceProto()
    sequence.instruction_ids = tuple(numbers[x] for x in computation.instructions)
    entry = SequenceEntry()
    entry.key = number
    entry.value = sequence
    return entry
