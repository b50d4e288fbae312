"""ReshardStep: one edge of the reshard search, and one group of instructions in the resulting program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.builder import Builder
    from spmd.hlo.instruction import HloInstruction


class ReshardContext(Protocol):
    """The part of a PartitionContext that steps need: the builder, and this device's coordinates."""

    axes: DeviceAxes
    builder: Builder

    def coordinate(self, axes: Axes) -> HloInstruction:
        """Return this device's index along ``axes`` taken as one, major to minor (s32[])."""


@dataclass(frozen=True, slots=True)
class ReshardStep(ABC):
    """A change of a value's state. The caller that makes a step has checked that its tiles line up (see
    ReshardProblem).

    S1 ``emit`` returns an array of ``apply(state).local_shape``; elements beyond the global size are unspecified
    """

    @property
    def collectives(self) -> int:
        """The number of collectives of the step; 0 without communication."""
        return 1

    @abstractmethod
    def apply(self, state: ShardState) -> ShardState:
        """Return the state after the step."""

    @abstractmethod
    def wire_bytes(self, axes: DeviceAxes, shape: ArrayShape, state: ShardState) -> float:
        """Return the bytes that a device sends (and receives), averaged over devices, by a bandwidth-optimal algorithm.

        ``shape`` is the global one, ``state`` the one before the step. Padding travels too.
        """

    @abstractmethod
    def emit(self, context: ReshardContext, value: ShardedValue) -> HloInstruction:
        """Write the instructions that turn ``value.hlo`` into the local array of the next state."""
