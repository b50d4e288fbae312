"""Arrays that stay on a device between steps.

A loaded program has places: the memory of its entry parameters and results. An array lies in a place as long as nobody
else needs it, and moves out into memory of its own when a step or another array does. So state that a step takes in and
gives back in the same place is never copied, and an output that the caller has let go costs nothing either.

    state in place 0 ── step, donated ──► consumed;  the step's output lies in place 0
    loss  in place 9 ── the next step writes place 9 ──► moved out, if the caller still holds it

A place keeps the arrays that it has handed out, and hands an output's out again for a later step when its own reference
is the only one (which CPython counts exactly): steps in a row make no objects. The array of an output that was donated
waits for one step, since its caller has it until the next output takes its name.

    state:  array A ── step, donated ──► array B ── step, donated ──► array A again, unless somebody has kept it
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
        """The values in the host's memory, without a copy if they lie there."""
        ...

    def copy(self) -> Self:
        """The same values in memory of their own."""
        ...


class DeviceArray:
    """One device's tile of an array. Its values never change; the step that it is donated to ends it.

    That is said of arrays that somebody holds. Nobody can refer to one weakly: the device may begin it anew.
    """

    __slots__ = ("_data", "_end", "key")

    def __init__(self, data: TileMemory, key: object | None = None) -> None:
        """``data``: in the memory of the place with this key, or (without one) memory that nobody else writes."""
        self._data: TileMemory | None = data
        self._end: End | None = None
        #: Of the place where it lies; None for memory of its own.
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
        """The values where they lie: to be read before the next step, never written. DonatedError once consumed.

        Of a device with memory of its own, they are read back.
        """
        return np.asarray(self.data)

    @property
    def data(self) -> TileMemory:
        """The memory where the values lie. DonatedError once consumed."""
        if self._data is None:
            assert self._end is not None
            raise DonatedError(
                f"an array {self.dtype}{list(self.shape)} was donated to a step of {self._end.taker}, "
                "which wrote its result in its place: use that step's output"
            )
        return self._data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """A copy, which stays as it is whatever the device does next."""
        if copy is False:
            raise ValueError("a device's array cannot be handed out without a copy")
        return np.array(self.view(), dtype=dtype, copy=True)

    # ---- what devices do with it
    def lie(self, memory: TileMemory, key: object) -> None:
        """Lie in the place with this key from now on, whose ``memory`` holds the values."""
        self._data, self._end, self.key = memory, None, key

    def move_out(self) -> None:
        assert self._data is not None
        self._data, self.key = self._data.copy(), None

    def donate(self, end: End) -> None:
        self._data, self._end, self.key = None, end, None


#: Lies nowhere, and is held.
NO_ARRAY = DeviceArray(np.empty(0))


class ArraySlot:
    """Memory of an entry parameter or result (or of both), and the one array that lies there."""

    __slots__ = ("_former", "array", "key")

    def __init__(self, array: DeviceArray = NO_ARRAY) -> None:
        #: By which an array says that it lies here: it does not refer to the place, whose memory would last as long.
        self.key = object()
        #: It has lain here, and does so still if it has the ``key``. An array is one place's at most.
        self.array = array
        #: The output of the step before, or what that step consumed.
        self._former = NO_ARRAY

    @property
    def is_free(self) -> bool:
        """The memory may be written: if an array lies here, nobody has it."""
        return self.array.key is not self.key or getrefcount(self.array) <= _OWN

    def vacate(self) -> None:
        """Let the memory be written: an array that lies here moves out, if anybody has it."""
        if not self.is_free:
            self.array.move_out()
            self.array = NO_ARRAY

    def admit(self, array: DeviceArray, memory: TileMemory) -> None:
        """``memory``: the place's, which holds a copy of the array's values already."""
        array.lie(memory, self.key)
        self.array = array

    def hand_out(self, memory: TileMemory) -> None:
        """A step has written ``memory``, the place's, which was free: have an array for it."""
        if self.array.key is self.key:
            return  # nobody has it
        self.array, self._former = self._former, self.array
        if getrefcount(self.array) > _OWN:
            self.array = DeviceArray(memory, self.key)
        else:
            self.array.lie(memory, self.key)


_SAMPLE = ArraySlot(DeviceArray(np.empty(0)))
#: References that the interpreter counts to an array that a place alone has.
_OWN = getrefcount(_SAMPLE.array)
