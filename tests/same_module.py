"""Assert that two modules are the same program, field by field, from the definition of the IR alone."""

from __future__ import annotations

from spmd.hlo import HloComputation, HloInstruction, HloModule

_HEADER = (
    "name",
    "stage",
    "entry_layout",
    "input_output_alias",
    "buffer_donors",
    "num_partitions",
    "replica_count",
    "frontend_attributes",
    "extra_header",
    "carried",
    "file_tables",
    "states_partitions",
)


def assert_same_module(a: HloModule, b: HloModule) -> None:
    """Equal headers, computations in the same order, instructions equal by value and by their links' names."""
    for field in _HEADER:
        assert getattr(a, field) == getattr(b, field), field
    assert [c.name for c in a.computations] == [c.name for c in b.computations]
    assert a.entry.name == b.entry.name
    for left, right in zip(a.computations, b.computations, strict=True):
        assert_same_computation(left, right)


def assert_same_computation(a: HloComputation, b: HloComputation) -> None:
    assert (a.name, a.root.name, a.execution_thread) == (b.name, b.root.name, b.execution_thread)
    left, right = a.instructions, b.instructions
    assert [i.name for i in left] == [i.name for i in right]
    for one, other in zip(left, right, strict=True):
        assert _value(one) == _value(other)


def _value(instruction: HloInstruction) -> tuple[object, ...]:
    return (
        instruction.name,
        instruction.opcode,
        instruction.shape,
        instruction.attrs,
        instruction.sharding,
        instruction.annotations,
        [o.name for o in instruction.operands],
        [u.name for u in instruction.users],
        [c.name for c in instruction.called_computations],
        [p.name for p in instruction.control_predecessors],
        [s.name for s in instruction.control_successors],
    )
