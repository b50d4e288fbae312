"""Read HloModuleProto into a module. The driver of the proto readers.

Ids are looked up, so every operand and callee stands before its use, as XLA demands of the proto, too.
"""

from __future__ import annotations

from spmd.errors import HloParseError, SpmdError, UnsupportedError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.implied_shape import IGNORE_THEIR_SHAPE, implied_shape
from spmd.proto.annotations_proto import AnnotationReader
from spmd.proto.attrs_proto import ATTRS_PROTO, ProtoValues
from spmd.proto.attrs_proto.async_ops import MAIN_THREAD
from spmd.proto.attrs_proto.elementwise import OLD_COMPARISONS
from spmd.proto.container import find_module
from spmd.proto.header import read_header
from spmd.proto.implied import Implied
from spmd.proto.schema.hlo import HloComputationProto, HloInstructionProto, HloModuleProto
from spmd.proto.shape_proto import read_shape
from spmd.proto.sharding_proto import read_sharding
from spmd.shape import Shape
from spmd.sharding import HloSharding
from spmd.text.names import sanitized

_OPCODES = {opcode.value: opcode for opcode in Opcode} | dict.fromkeys(
    OLD_COMPARISONS, Opcode.COMPARE
)
#: The lower half of an id is the number of the instruction in its computation, the upper half the id of the
#: computation.
_LOCAL_ID = (1 << 32) - 1


def parse_proto(data: bytes, file: str = "<bytes>") -> HloModule:
    """Return the module in a serialized HloModuleProto, HloProto or HloModuleProtoWithConfig.

    ``file`` names the data in errors. Raises HloParseError for other data, and UnsupportedError for valid modules that
    this project does not support.
    """
    try:
        found = find_module(data)
        module = _ModuleReader(HloModuleProto(found.module), Implied()).read()
        if found.config is not None:
            from spmd.proto.module_config import read_config  # deferred: it imports readers of text

            read_config(module, found.config)
        return module
    except UnsupportedError as error:
        raise UnsupportedError(f"{file}: {error}") from error
    except SpmdError as error:
        raise HloParseError(f"{file}: {error}") from error


class _ModuleReader:
    """Reader of one module. It caches records, so that equal bytes give the same (shared) record."""

    def __init__(self, proto: HloModuleProto, implied: Implied, *, nested: bool = False) -> None:
        self.proto = proto
        self.implied = implied
        self.nested = nested
        self.module = read_header(proto, implied)
        self.annotations = AnnotationReader(proto.payloads)
        self.computations: dict[int, HloComputation] = {}
        #: Instructions of each computation by their local id.
        self.instructions: dict[int, dict[int, HloInstruction]] = {}
        self.shapes: dict[bytes, Shape] = {}
        self.shardings: dict[bytes, HloSharding] = {}

    def read(self) -> HloModule:
        for computation in self.proto.computations:
            self._read_computation(computation)
        self.module.entry = self._entry()
        self._read_schedule()
        self._read_recovery_table()
        return self.module

    def _entry(self) -> HloComputation:
        found = self.computations.get(self.proto.entry_computation_id)
        if found is None:
            wanted = sanitized(self.proto.entry_computation_name)
            found = next((c for c in self.module.computations if c.name == wanted), None)
        if found is None:
            raise HloParseError(
                f"the module has no entry computation {self.proto.entry_computation_id}"
            )
        return found

    # ---- computations
    def _read_computation(self, proto: HloComputationProto) -> None:
        if proto.id in self.computations:
            raise HloParseError(f"two computations have the id {proto.id}")
        computation = self.module.new_computation(_name(proto.name, "a computation"))
        by_id: dict[int, HloInstruction] = {}
        for instruction in proto.instructions:
            local_id = instruction.id & _LOCAL_ID
            if local_id in by_id:
                raise HloParseError(
                    f"computation {computation.name!r}: two instructions have the id {instruction.id}"
                )
            by_id[local_id] = self._read_instruction(instruction, computation, by_id)
        root = by_id.get(proto.root_id & _LOCAL_ID)
        if root is None:
            raise HloParseError(f"computation {computation.name!r} has no root {proto.root_id}")
        computation.root = root
        thread = proto.execution_thread
        computation.execution_thread = "" if thread == MAIN_THREAD else thread
        for expected, parameter in enumerate(computation.parameters):
            if parameter.attrs_as(ParameterAttrs).number != expected:
                raise HloParseError(f"computation {computation.name!r} has no parameter {expected}")
        self.computations[proto.id] = computation
        self.instructions[proto.id] = by_id

    # ---- instructions
    def _read_instruction(
        self,
        proto: HloInstructionProto,
        computation: HloComputation,
        by_id: dict[int, HloInstruction],
    ) -> HloInstruction:
        try:
            instruction = self._build(proto, by_id)
            return computation.add(instruction)
        except UnsupportedError as error:
            raise UnsupportedError(f"{_location(proto, computation)}: {error}") from error
        except SpmdError as error:
            raise HloParseError(f"{_location(proto, computation)}: {error}") from error

    def _build(
        self, proto: HloInstructionProto, by_id: dict[int, HloInstruction]
    ) -> HloInstruction:
        opcode = _OPCODES.get(proto.opcode)
        if opcode is None:
            raise HloParseError(f"unknown opcode {proto.opcode!r}")
        shape = self._shape(proto)
        operands = tuple(_found(by_id, number, "operand") for number in proto.operand_ids)
        if opcode in IGNORE_THEIR_SHAPE:
            shape = implied_shape(opcode, operands) or shape
        callees = self._callees(opcode, proto, operands)
        values = ProtoValues(proto, shape, operands, len(callees), self.implied)
        instruction = HloInstruction(
            opcode,
            shape,
            operands,
            ATTRS_PROTO[opcode].read(values),
            name=_name(proto.name, "an instruction"),
            called_computations=callees,
            sharding=self._sharding(proto),
            annotations=self.annotations.read(proto, shape),
        )
        _add_control_edges(instruction, by_id, proto.control_predecessor_ids)
        return instruction

    def _shape(self, proto: HloInstructionProto) -> Shape:
        data = proto.bytes_of(HloInstructionProto.shape)
        if data is None:
            raise HloParseError("the shape is missing")
        shape = self.shapes.get(data)
        if shape is None:
            shape = self.shapes[data] = read_shape(proto.shape)
        return shape

    def _sharding(self, proto: HloInstructionProto) -> HloSharding | None:
        data = proto.bytes_of(HloInstructionProto.sharding)
        if data is None:
            return None
        sharding = self.shardings.get(data)
        if sharding is None:
            message = proto.sharding
            assert message is not None
            sharding = self.shardings[data] = read_sharding(message, self.implied)
        return sharding

    def _callees(
        self, opcode: Opcode, proto: HloInstructionProto, operands: tuple[HloInstruction, ...]
    ) -> list[HloComputation]:
        """Return the callees in the order of ``called_computations``; async-update and async-done have the start's."""
        record = ATTRS_PROTO[opcode]
        callees = [self._callee(number) for number in proto.called_computation_ids]
        if opcode in (Opcode.ASYNC_UPDATE, Opcode.ASYNC_DONE) and operands and not callees:
            callees = list(operands[0].called_computations)
        if record.callees is not None and len(callees) != record.callees:
            raise HloParseError(
                f"{opcode} calls {record.callees} computations, found {len(callees)}"
            )
        return callees[::-1] if record.swaps_callees else callees

    def _callee(self, number: int) -> HloComputation:
        computation = self.computations.get(number)
        if computation is None:
            raise HloParseError(f"no computation {number} is defined before this instruction")
        return computation

    # ---- schedule
    def _read_schedule(self) -> None:
        """Read the schedule, and put each computation of it into the order of its sequence."""
        schedule = self.proto.schedule
        if schedule is None or not schedule.sequences:
            return
        for entry in schedule.sequences:
            computation = self.computations.get(entry.key)
            if computation is None:
                raise HloParseError(f"the schedule names an unknown computation {entry.key}")
            numbers = () if entry.value is None else entry.value.instruction_ids
            by_id = self.instructions[entry.key]
            computation.set_order(
                _found(by_id, number, "scheduled instruction") for number in numbers
            )
        self.module.stage = Stage.SCHEDULED

    # ---- recovered values
    def _read_recovery_table(self) -> None:
        """Read the modules of the table. They have no tables themselves, so reading nests once."""
        table = self.proto.original_value_recovery_table
        if table is None or not table.entries:
            return
        from spmd.proto.recovery_table import RECOVERY_TABLES, recovery_table_text

        if self.nested:
            raise HloParseError("a module in a table of recovered values has such a table itself")
        text = recovery_table_text(
            table, lambda proto: _ModuleReader(proto, self.implied, nested=True).read()
        )
        self.module.extra_header = ((RECOVERY_TABLES[0], text),)


def _add_control_edges(
    instruction: HloInstruction, by_id: dict[int, HloInstruction], numbers: tuple[int, ...]
) -> None:
    """Add the control dependencies of an instruction that has none yet, without a search for duplicates."""
    for before in dict.fromkeys(_found(by_id, n, "control predecessor") for n in numbers):
        instruction.control_predecessors.append(before)
        before.control_successors.append(instruction)


def _found(by_id: dict[int, HloInstruction], number: int, what: str) -> HloInstruction:
    instruction = by_id.get(number & _LOCAL_ID)
    if instruction is None:
        raise HloParseError(f"no {what} {number} is defined before this instruction")
    return instruction


def _name(name: str, what: str) -> str:
    if not name:
        raise HloParseError(f"{what} has no name")
    return sanitized(name)


def _location(proto: HloInstructionProto, computation: HloComputation) -> str:
    return f"computation {computation.name!r}, instruction {proto.name!r}"
