"""Planning of GPU commands from thunks. Each class of thunks has one rule; the rules are in ``commands/``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TypeAlias, TypeVar, cast

from collectives.communicator.nccl.communicator import NcclCommunicator
from runtime.buffers.types import ArrayView
from runtime.gpu.codegen.launch import KernelSource, anchored
from runtime.gpu.command import Command
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView
from runtime.program.thunks import CollectiveStartThunk, Thunk
from spmd.errors import UnsupportedError
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry

Views: TypeAlias = tuple[StridedView, ...]

#: Compiler of kernels: (kernel, operands, results, scratch) -> launches that run in order, or None if the kernel has no
#: PTX code for arrays of these layouts.
MakeLaunches: TypeAlias = Callable[[Kernel, Views, Views, Views], tuple[KernelSource, ...] | None]


@dataclass(frozen=True)
class Planner:
    """Planner of the commands of one device.

    rank: rank of this device. num_partitions: devices of one replica. make_launches: compiler of kernels.
    collectives: communicator between GPUs, or None. Collectives that it does not support go through the host.
    has_blocking_steps: some steps wait for each collective at its start. multiprocessors: their number on this GPU.
    """

    rank: int
    num_partitions: int
    make_launches: MakeLaunches
    collectives: NcclCommunicator | None = None
    options: GpuOptions = DEFAULT
    has_blocking_steps: bool = False
    multiprocessors: int = 132
    #: Names of the start thunks planned so far whose collectives go through the host.
    by_host: set[str] = field(default_factory=set)

    def plan(self, thunk: Thunk) -> tuple[Command, ...]:
        """Return the commands for ``thunk``, in order. Raises UnsupportedError if its class has no rule."""
        rule = RULES.get(type(thunk))
        if rule is None:
            raise UnsupportedError(
                f"{thunk.name}: no rule says what a GPU does for a {type(thunk).__name__}"
            )
        return tuple(rule(thunk, self))

    def goes_by_host(self, start: CollectiveStartThunk) -> bool:
        """Return whether the collective of ``start`` goes through the host, and record its name in ``by_host`` if so.

        The planner of the corresponding done reads that record, so this must be called first.
        """
        if self.collectives is not None:
            dtypes = [array.view.element_type.numpy for array in start.operands]
            if self.collectives.cannot(start.op.of_rank(self.rank), dtypes) is None:
                return False
        self.by_host.add(start.name)
        return True

    def anchored(self, arrays: tuple[ArrayView, ...]) -> Views:
        """Return the views of ``arrays`` relative to the aligned pointers that PTX kernels take (see ``anchored``).

        Every allocation starts at an aligned address, so an array's offset in its allocation determines its view.
        """
        return tuple(anchored(p.slice.start_on(self.rank), p.view)[1] for p in arrays)


Rule: TypeAlias = Callable[[Thunk, Planner], Iterator[Command]]
RULES: Registry[type[Thunk], Rule] = Registry("GPU rule")

T = TypeVar("T", bound=Thunk)


def plans(kind: type[T]) -> Callable[[Callable[[T, Planner], Iterator[Command]]], object]:
    """Return a decorator that registers a function as the rule for thunks of class ``kind``."""

    def decorator(rule: Callable[[T, Planner], Iterator[Command]]) -> object:
        RULES.add(kind, cast("Rule", rule))
        return rule

    return decorator
