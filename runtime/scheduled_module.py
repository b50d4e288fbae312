"""The scheduled module of an executable, which is read only if somebody asks for it where thunks are loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from spmd.analysis.aliased_outputs import aliased_outputs

if TYPE_CHECKING:
    from spmd.hlo import HloModule


class ScheduledModule:
    """Module that thunks were made of. ``aliases``: output leaf -> input leaf that it aliases, where that is known."""

    def __init__(
        self, read: Callable[[], HloModule], aliases: dict[int, int] | None = None
    ) -> None:
        """``read``: is called once, at the first use of the module, and may raise SpmdError."""
        self._read = read
        self._aliases = aliases

    @cached_property
    def module(self) -> HloModule:
        return self._read()

    @cached_property
    def aliases(self) -> dict[int, int]:
        """Output leaf number -> input leaf number; donors count with the results that take their places."""
        return aliased_outputs(self.module) if self._aliases is None else self._aliases
