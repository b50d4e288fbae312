"""Native code of node barriers (collectives/communicator/node/barrier.py), called with a record for each member."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache, cached_property
from typing import Any

import numpy as np

from collectives.communicator.actions.engine import BarrierRecord
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit

ENTER, WAIT = FUNCTIONS = ("spmd_barrier_enter", "spmd_barrier_wait")


class BarrierWord(IntEnum):
    """Words of a member's record. Their meaning is that of the fields of BarrierRecord."""

    MEMBERS = 0
    OWN = 1
    COME = 2
    OPENED = 3
    SPIN_LIMIT = 4
    NUMBER = 5
    SLEEP_TIMEOUT = 6  # seconds and nanoseconds


RECORD_WORDS = 8


@cache
def barrier_library() -> NativeLibrary:
    """Return the library of the functions ``ENTER`` and ``WAIT``.

    Both take the address of a member's record and return an i64, which is 0 if all members have entered the barrier.
    """
    ir = DeferredIr("runtime.cpu.step.barrier_ir", "barrier_ir")
    return host_jit().compile(ir, FUNCTIONS, passes=Passes.TIDY)


_SLEEP_TIMEOUT_NANOSECONDS = 100_000_000
"""Timeout of a sleep, after which the waiting member checks whether its peers are alive."""


class NativeBarrier:
    """LoadedBarrier whose ``enter`` and ``wait`` are native code."""

    def __init__(self, addresses: BarrierRecord, code: NativeLibrary) -> None:
        self._code = code
        self._record = np.zeros(RECORD_WORDS, np.int64)
        for word, value in {
            BarrierWord.MEMBERS: addresses.members,
            BarrierWord.OWN: addresses.own,
            BarrierWord.COME: addresses.come,
            BarrierWord.OPENED: addresses.opened,
            BarrierWord.SPIN_LIMIT: addresses.spin_limit,
        }.items():
            self._record[word] = value
        self._record[BarrierWord.SLEEP_TIMEOUT + 1] = _SLEEP_TIMEOUT_NANOSECONDS
        self._view = self._record.data
        self._argument = ctypes.c_void_p(self._record.ctypes.data)

    # The functions are looked up at their first use, which waits for the compilation: many ranks never use a barrier.
    @cached_property
    def _enter(self) -> Any:
        return self._code.function(ENTER, ctypes.c_int64, ctypes.c_void_p)

    @cached_property
    def _wait(self) -> Any:
        return self._code.function(WAIT, ctypes.c_int64, ctypes.c_void_p)

    @property
    def number(self) -> int:
        return int(self._view[BarrierWord.NUMBER])

    def enter(self) -> int:
        return int(self._enter(self._argument))

    def wait(self) -> int:
        return int(self._wait(self._argument))
