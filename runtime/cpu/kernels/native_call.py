"""Native code as plain addresses: what one call does, and actions made of such calls, which a segment takes over."""

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
    """``void function(ptr record)``, which raises nothing and touches no Python object.

    ``alive``: record, and the arrays whose addresses stand in it, kept as long as the call.
    """

    code: NativeLibrary
    name: str
    record: int
    alive: tuple[object, ...]

    @property
    def function(self) -> int:
        """Its address, for which the code is waited for."""
        return self.code.address(self.name)


class NativeAction:
    """An action that is native calls, one after the other.

    Called from Python it is a call of ctypes for each, which releases the GIL. A thunk sequence takes ``calls`` and
    makes them part of a segment instead.
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
    """Native actions that do not depend on each other: threads that share a device's work may do them at once."""

    def __init__(self, pieces: Sequence[NativeAction]) -> None:
        self.pieces = tuple(pieces)

    def __call__(self) -> None:
        for piece in self.pieces:
            piece()


def name_code(action: Callable[[], None], caller: str) -> None:
    """Say for which thunk the code of ``action`` was bound first, so that profilers name it."""
    if isinstance(action, SharedAction):
        for piece in action.pieces:
            name_code(piece, caller)
    elif isinstance(action, NativeAction):
        for call in action.calls:
            call.code.caller = call.code.caller or caller


def native_call(
    code: NativeLibrary, name: str, record: NDArray, arrays: tuple[NDArray, ...]
) -> NativeAction:
    """Call function ``name`` of ``code`` with the address of ``record``, whose words name ``arrays``' memory."""
    call = NativeCall(code, name, record.ctypes.data, (record, arrays))
    return NativeAction((call,))


def in_order(*actions: Callable[[], None]) -> Callable[[], None]:
    """One action after the other: native where all of them are."""
    calls: list[NativeCall] = []
    for action in actions:
        if not isinstance(action, NativeAction):
            return partial(_run_all, actions)
        calls += action.calls
    return NativeAction(calls)


def _run_all(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()


#: There is nothing to do: an array is empty.
NOTHING = NativeAction(())
