"""Opcodes of collectives: one for each kind, and a start and a done for those that have some of their own."""

from __future__ import annotations

from spmd.hlo.opcode import Opcode

#: The kinds of collectives, represented by their synchronous opcodes, whose values are their names.
SYNCHRONOUS_COLLECTIVES = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_GATHER,
    Opcode.REDUCE_SCATTER,
    Opcode.ALL_TO_ALL,
    Opcode.COLLECTIVE_PERMUTE,
    Opcode.COLLECTIVE_BROADCAST,
    Opcode.RAGGED_ALL_TO_ALL,
)
#: Start and done opcodes of the kinds that have their own. An async-start wraps the other kinds.
START_AND_DONE = {
    Opcode.ALL_REDUCE: (Opcode.ALL_REDUCE_START, Opcode.ALL_REDUCE_DONE),
    Opcode.ALL_GATHER: (Opcode.ALL_GATHER_START, Opcode.ALL_GATHER_DONE),
    Opcode.COLLECTIVE_PERMUTE: (
        Opcode.COLLECTIVE_PERMUTE_START,
        Opcode.COLLECTIVE_PERMUTE_DONE,
    ),
}
#: Opcode that begins a collective -> name of the kind.
KIND = {
    **{opcode: opcode.value for opcode in SYNCHRONOUS_COLLECTIVES},
    **{start: opcode.value for opcode, (start, _) in START_AND_DONE.items()},
}
#: Opcodes that begin a collective.
COLLECTIVES = tuple(KIND)
COLLECTIVE_DONES = tuple(done for _, done in START_AND_DONE.values())

#: Collectives with a reducer.
REDUCING_COLLECTIVES = (Opcode.ALL_REDUCE, Opcode.ALL_REDUCE_START, Opcode.REDUCE_SCATTER)
#: Collectives among pairs of devices, not in groups.
PERMUTES = (Opcode.COLLECTIVE_PERMUTE, Opcode.COLLECTIVE_PERMUTE_START)
#: The other collectives: they move the data of a group's devices unchanged.
MOVING_COLLECTIVES = tuple(
    opcode for opcode in COLLECTIVES if opcode not in (*REDUCING_COLLECTIVES, *PERMUTES)
)
