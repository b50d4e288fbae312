"""Conditionals: the host downloads the selector and enqueues the selected branch."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.buffers.types import ArrayView
from runtime.gpu.command import Action, Command, GpuProgram, HostCommand
from runtime.gpu.commands.bound import bound
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.planning import Planner, plans
from runtime.gpu.transfers.read_back import read_back
from runtime.program.thunks import ConditionalThunk
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class ConditionalCommand(HostCommand):
    """HLO conditional with its branches as commands.

    A pred selector that is true selects branch 0, otherwise branch 1. An s32 selector is the index of the branch; an
    index out of range selects the last branch.
    """

    selector: ArrayView
    branches: tuple[tuple[Command, ...], ...]

    def nested(self) -> Iterator[Command]:
        for branch in self.branches:
            yield from branch

    def bind(self, device: GpuProgram) -> Action:
        branches = [bound(branch, device) for branch in self.branches]
        selector = read_back(device, self.selector)
        if self.selector.view.element_type is PrimitiveType.PRED:
            if_true, if_false = branches[0], branches[-1]
            return lambda: if_true() if selector() else if_false()
        last = len(branches) - 1

        def run() -> None:
            chosen = selector()
            branches[chosen if 0 <= chosen < last else last]()

        return run


@plans(ConditionalThunk)
def plan_conditional(thunk: ConditionalThunk, planner: Planner) -> Iterator[Command]:
    """Yield the command of a conditional."""
    branches = tuple(plan_commands(branch, planner) for branch in thunk.branches)
    yield ConditionalCommand(thunk, thunk.selector, branches)
