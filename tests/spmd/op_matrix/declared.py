"""The cells that no test fills, each with its reason: the one list of them.

What an element type does not have at all (pred has no denormals) is derived from its format in cells.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from spmd.hlo import Opcode
from tests.spmd.op_matrix.cells import Cell, Edge, edges_of
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS
from tests.spmd.op_matrix.values import ALL_TYPES

_ALL = tuple(Edge)
_VALUES = tuple(e for e in Edge if e not in (Edge.EMPTY, Edge.ONE))
_OPEN = (Edge.INFINITE, Edge.NAN)


@dataclass(frozen=True)
class Declared:
    """Cells of ``opcodes`` x ``kinds`` x ``edges`` that need no test."""

    opcodes: tuple[Opcode, ...]
    edges: tuple[Edge, ...]
    reason: str
    kinds: Collection[str] = ALL_TYPES

    def cells(self) -> Iterator[Cell]:
        for opcode in self.opcodes:
            for kind in self.kinds:
                for edge in self.edges:
                    if edge in edges_of(kind):
                        yield opcode, kind, edge


DECLARED = (
    Declared((Opcode.INFEED, Opcode.OUTFEED), _ALL, "moves bytes of any type: tests/launch/data/test_feeds.py feeds and takes them"),
    Declared((Opcode.PARAMETER,), _ALL, "the argument itself: every array of every test here comes in through one"),
    Declared((Opcode.RECV,), _ALL, "its data is what recv-done gives"),
    Declared((Opcode.RNG,), _ALL, "random: tests/spmd/evaluator/test_rng.py and test_linear.py test its bounds and its repetition"),
    Declared(
        (Opcode.RNG_BIT_GENERATOR, Opcode.RNG_GET_AND_UPDATE_STATE), _ALL,
        "no data to have edges: tests/spmd/evaluator/test_rng.py holds the bits to the published vectors",
    ),
    Declared((Opcode.PARTITION_ID, Opcode.REPLICA_ID), (Edge.GREATEST, Edge.EMPTY, Edge.ONE), "a scalar that counts devices"),
    Declared((Opcode.IOTA,), (Edge.MINUS_ZERO, *_OPEN, Edge.DENORMAL, Edge.LEAST, Edge.GREATEST), "counts up from 0; types that it overflows are tried with 300 elements"),
    Declared((Opcode.DIVIDE, Opcode.POWER, Opcode.ATAN2), _OPEN, "C's annex G leaves them open for complex numbers that are not finite", tuple(COMPLEX)),
    Declared((Opcode.SORT,), _ALL, "no order of complex numbers: comparators of their parts are the tests of real ones", tuple(COMPLEX)),
    Declared((Opcode.TOPK,), _ALL, "no order of complex numbers", tuple(COMPLEX)),
    Declared((Opcode.SCALED_DOT,), _ALL, "scales are of floating-point blocks; the verifier, as XLA's, does not look at the type", ("pred", *INTEGERS, *COMPLEX)),
    Declared(
        (Opcode.BATCH_NORM_TRAINING, Opcode.BATCH_NORM_GRAD, Opcode.CHOLESKY, Opcode.TRIANGULAR_SOLVE), _ALL,
        "differences in a type without zero and sign are NaN throughout", ("f8e8m0fnu",),
    ),
    Declared((Opcode.STOCHASTIC_CONVERT,), _ALL, "there is no unsigned type of six bits to bring the random bits", [k for k in FLOATS if FLOATS[k].bits == 6]),
)  # fmt: skip


def reasons() -> dict[Cell, str]:
    return {cell: entry.reason for entry in DECLARED for cell in entry.cells()}
