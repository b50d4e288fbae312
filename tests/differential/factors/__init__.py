"""The definition of every op's factors; importing the package fills the table."""

from tests.differential.factors import combining, elementwise, indexed, moving, whole
from tests.differential.factors.table import KINDS, Factor, Place, arrays, factors_of, row_of

__all__ = [
    "KINDS",
    "Factor",
    "Place",
    "arrays",
    "combining",
    "elementwise",
    "factors_of",
    "indexed",
    "moving",
    "row_of",
    "whole",
]
