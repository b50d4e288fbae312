"""Thunk that calls a Python function of the host process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from runtime.arrays.host_feed import HostChannel
from runtime.buffers.types import ArrayView
from runtime.program.kernel import Action
from runtime.program.thunks import BufferUse, Role, Thunk, UseKind, uses
from spmd.custom_call import advice_for
from spmd.errors import UnsupportedError
from spmd.host_callback import CallbackSignature, call_back
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray


@dataclass(frozen=True)
class CallbackThunk(Thunk):
    """Call of Python function ``number`` of the host channel. ``target`` is the custom call's target, for messages."""

    target: str
    number: int
    operands: tuple[ArrayView, ...]
    results: tuple[ArrayView, ...]
    signature: CallbackSignature

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)

    def on_arrays(
        self, host: HostChannel, operands: tuple[NDArray, ...], results: tuple[NDArray, ...]
    ) -> Action:
        """Return an action that calls the function on arrays in host memory and copies its results to ``results``.

        Raises UnsupportedError if ``host`` has no function with this number.
        """
        if self.number >= len(host.callbacks):
            raise UnsupportedError(
                f'{self.name}: no evaluation is registered for custom-call target "{self.target}"; '
                f"{advice_for(self.target)}"
            )
        function = host.callbacks[self.number]

        def run() -> None:
            found = call_back(self.signature, function, operands)
            for target, array in zip(results, found, strict=True):
                np.copyto(target, array)

        return run
