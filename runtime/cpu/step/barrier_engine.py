"""Engine of barriers (collectives/communicator/node/barrier.py) in native code, with a record for each member."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from collectives.communicator.steps.engine import BarrierRecord
from runtime.codegen.llvm.jit import NativeLibrary
from runtime.cpu.step.barrier_ir import ENTER, RECORD_WORDS, WAIT, BarrierWord

_SLEEP_TIMEOUT_NANOSECONDS = 100_000_000
"""Timeout of a sleep, after which the waiting member checks whether its peers are alive."""


class NativeBarrier:
    """LoadedBarrier of native code."""

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

    # The first use waits for the compiled code: many ranks never use a barrier.
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
