"""Native calls as plain addresses, and actions made of such calls, which become rows of a segment."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from runtime.codegen.llvm.jit import NativeLibrary
from spmd.literal import NDArray

_VOID_OF_RECORD = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """Call of ``void function(ptr record)``, which raises nothing and touches no Python object.

    ``alive``: the record and the arrays whose addresses it holds.
    """

    code: NativeLibrary
    name: str
    record: int
    alive: tuple[object, ...]

    @property
    def function(self) -> int:
        """The function's address; waits until the code is compiled."""
        return self.code.address(self.name)


class NativeAction:
    """Action that consists of native calls, one after the other.

    From Python, each is a call of ctypes, which releases the GIL. A thunk sequence makes ``calls`` rows of a segment
    instead.
    """

    def __init__(self, calls: Sequence[NativeCall]) -> None:
        self.calls = tuple(calls)

    def __call__(self) -> None:
        for run in self._runs:
            run()

    @cached_property
    def _runs(self) -> list[Callable[[], None]]:
        return [
            partial(_VOID_OF_RECORD(call.function), ctypes.c_void_p(call.record))
            for call in self.calls
        ]


class SharedAction:
    """Independent native actions, which threads that share a device's work may run concurrently."""

    def __init__(self, pieces: Sequence[NativeAction]) -> None:
        self.pieces = tuple(pieces)

    def __call__(self) -> None:
        for piece in self.pieces:
            piece()


def name_code(action: Callable[[], None], caller: str) -> None:
    """Name the thunk ``caller`` as the first one with the code of ``action``, for profilers."""
    if isinstance(action, SharedAction):
        for piece in action.pieces:
            name_code(piece, caller)
    elif isinstance(action, NativeAction):
        for call in action.calls:
            call.code.caller = call.code.caller or caller


def native_call(
    code: NativeLibrary, name: str, record: NDArray, arrays: tuple[NDArray, ...]
) -> NativeAction:
    """Return a call of function ``name`` of ``code`` with ``record``, which holds addresses of ``arrays``."""
    call = NativeCall(code, name, record.ctypes.data, (record, arrays))
    return NativeAction((call,))


def in_order(*actions: Callable[[], None]) -> Callable[[], None]:
    """Return the actions in sequence, as one native action if all of them are native."""
    calls: list[NativeCall] = []
    for action in actions:
        if not isinstance(action, NativeAction):
            return partial(_run_all, actions)
        calls += action.calls
    return NativeAction(calls)


def _run_all(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()


#: Action of kernels whose arrays are empty.
NOTHING = NativeAction(())
