"""Small programs of one op each, by op family; importing this package fills the table."""

from tests.differential.op_programs import (
    convolution,
    dot,
    elementwise,
    gather_scatter,
    leaf,
    linalg,
    reduce,
    reshape,
    rng,
    slicing,
    sort,
    tuple,  # noqa: A004 - a family is named by its opcode, and nothing here uses the built-in
)
from tests.differential.op_programs.table import OPS, Draw

__all__ = [
    "OPS",
    "Draw",
    "convolution",
    "dot",
    "elementwise",
    "gather_scatter",
    "leaf",
    "linalg",
    "reduce",
    "reshape",
    "rng",
    "slicing",
    "sort",
    "tuple",
]
