"""Python functions that a module calls by number; they are in no text or proto of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding

if TYPE_CHECKING:
    from spmd.hlo.module import HloModule

#: Computation of a callback on the host: a function from arrays to arrays. An ordered callback takes None for a token,
#: and may return anything for it.
Callback: TypeAlias = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class LocalFunction:
    """Partitioned form of a function: a module on tiles, and the shardings to which the tiles belong."""

    module: HloModule
    operands: tuple[HloSharding, ...]
    results: tuple[HloSharding, ...]


#: (shapes and shardings of operands, of results) -> the function for tiles, which may choose other shardings.
PartitionFunction: TypeAlias = Callable[
    [Sequence[ArrayShape], Sequence[HloSharding], Sequence[ArrayShape], Sequence[HloSharding]],
    LocalFunction,
]


@dataclass(frozen=True)
class HostFunctions:
    """Functions by number. ``callbacks``: Python callbacks, by index. ``partitioners``: functions of
    CustomSPMDPartitioning calls, by the number in their backend_config.
    """

    callbacks: tuple[Callback, ...] = ()
    partitioners: tuple[PartitionFunction, ...] = ()


NO_FUNCTIONS = HostFunctions()
