"""Arrays that stay on a device between steps.

A loaded program has array slots: the memory of its entry parameters and results. An array occupies a slot until a step
or another array needs it, and is then copied to its own allocation. So state that a step reads and writes in the same
slot is never copied, and an output that the caller has released costs nothing.

    state in slot 0 ── step, donated ──► consumed;  the step's output occupies slot 0
    loss  in slot 9 ── the next step writes slot 9 ──► copied out, if the caller still references it

A slot retains the arrays that it has returned, and returns an output's again for a later step if its own reference is
the only one (CPython counts references exactly): consecutive steps create no objects. The array of a donated output is
reused one step later, since the caller references it until the next output gets its name.

    state:  array A ── step, donated ──► array B ── step, donated ──► array A again, unless it is still referenced
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from spmd.errors import RunError
from spmd.literal import NDArray


class DonatedError(RunError):
    """An array was used after a step had consumed it."""


class End(NamedTuple):
    """Record of an array that was donated."""

    taker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class TileMemory(Protocol):
    """Memory of one array's values: a NumPy array, or memory of another device (runtime/gpu/tile.py)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> NDArray:
        """Return the values in the host's memory, without a copy if they are there."""
        ...

    def copy(self) -> Self:
        """Return a copy in newly allocated memory."""
        ...


class DeviceArray:
    """One device's tile of an array. Its values never change; donating it to a step ends it.

    This holds for arrays that are referenced. There are no weak references: the device may reuse the object.
    """

    __slots__ = ("_data", "_end", "key")

    def __init__(self, data: TileMemory, key: object | None = None) -> None:
        """``data``: memory of the slot with this key; without a key, memory that only this array uses."""
        self._data: TileMemory | None = data
        self._end: End | None = None
        #: Key of the slot that it occupies; None if it has its own allocation.
        self.key = key

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape if self._end is None else self._end.shape  # type: ignore[union-attr]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._data.dtype if self._end is None else self._end.dtype  # type: ignore[union-attr]

    @property
    def is_donated(self) -> bool:
        return self._data is None

    def view(self) -> NDArray:
        """Return the values without a copy; read them before the next step and never write them.

        If the device has its own memory, they are copied to the host. Raises DonatedError if the array was donated.
        """
        return np.asarray(self.data)

    @property
    def data(self) -> TileMemory:
        """The memory of the values. Raises DonatedError if the array was donated."""
        if self._data is None:
            assert self._end is not None
            raise DonatedError(
                f"an array {self.dtype}{list(self.shape)} was donated to a step of {self._end.taker}, "
                "which wrote its result in its place: use that step's output"
            )
        return self._data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return a copy that later steps do not change."""
        if copy is False:
            raise ValueError("a device's array cannot be handed out without a copy")
        return np.array(self.view(), dtype=dtype, copy=True)

    # ---- used by devices
    def lie(self, memory: TileMemory, key: object) -> None:
        """Move the array to the slot with this key, whose ``memory`` holds the values."""
        self._data, self._end, self.key = memory, None, key

    def move_out(self) -> None:
        assert self._data is not None
        self._data, self.key = self._data.copy(), None

    def donate(self, end: End) -> None:
        self._data, self._end, self.key = None, end, None


#: Array in no slot. It stands for an empty slot and is always referenced.
NO_ARRAY = DeviceArray(np.empty(0))


class ArraySlot:
    """Memory of an entry parameter or result (or of both), and the array that occupies it."""

    __slots__ = ("_former", "array", "key")

    def __init__(self, array: DeviceArray = NO_ARRAY) -> None:
        #: Arrays refer to this key instead of the slot, so that they do not keep the slot's memory alive.
        self.key = object()
        #: Last array of the slot; it still occupies it if it has the ``key``. An array has at most one slot.
        self.array = array
        #: The output of the step before, or the array that that step consumed.
        self._former = NO_ARRAY

    @property
    def is_free(self) -> bool:
        """True if the memory may be written: no array occupies the slot, or only the slot references it."""
        return self.array.key is not self.key or getrefcount(self.array) <= _OWN

    def vacate(self) -> None:
        """Make the memory writable: copy the array out if it is still referenced."""
        if not self.is_free:
            self.array.move_out()
            self.array = NO_ARRAY

    def admit(self, array: DeviceArray, memory: TileMemory) -> None:
        """Put ``array`` into the slot. ``memory``: the slot's, which already holds a copy of the values."""
        array.lie(memory, self.key)
        self.array = array

    def hand_out(self, memory: TileMemory) -> None:
        """Make an array for ``memory``, the slot's, which was free and which a step has written."""
        if self.array.key is self.key:
            return  # only the slot references it
        self.array, self._former = self._former, self.array
        if getrefcount(self.array) > _OWN:
            self.array = DeviceArray(memory, self.key)
        else:
            self.array.lie(memory, self.key)


_SAMPLE = ArraySlot(DeviceArray(np.empty(0)))
#: Number of references that the interpreter counts if only the slot references an array.
_OWN = getrefcount(_SAMPLE.array)
