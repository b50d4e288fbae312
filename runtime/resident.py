"""Arrays that stay on a device between steps.

A loaded program has places: the memory of its entry parameters and results. An array lies in a place as long as nobody
else needs it, and moves out into memory of its own when a step or another array does. So state that a step takes in and
gives back in the same place is never copied, and an output that the caller has let go costs nothing either.

    state in place 0 ── step, donated ──► consumed;  the step's output lies in place 0
    loss  in place 9 ── the next step writes place 9 ──► moved out, if the caller still holds it
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from spmd.errors import RunError
from spmd.literal import NDArray


class DonatedError(RunError):
    """An array was used after a step had consumed it."""


class Place:
    """Memory of an entry parameter or result (or of both), and the one array that lies there, if anyone holds it."""

    __slots__ = ("reference",)

    def __init__(self) -> None:
        #: To who lies here, if anyone ever did since it was cleared: a step looks at it for each output.
        self.reference: weakref.ref[DeviceArray] | None = None

    @property
    def occupant(self) -> DeviceArray | None:
        return self.reference() if self.reference is not None else None

    def vacate(self) -> None:
        """Let the memory be written: an array that lies here moves out."""
        occupant = self.occupant
        if occupant is not None:
            occupant.move_out()
        self.clear()

    def clear(self) -> None:
        """Nobody lies here any more."""
        self.reference = None

    def admit(self, array: DeviceArray) -> None:
        self.reference = weakref.ref(array)


class _End(NamedTuple):
    """What is left of an array that was donated."""

    taker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class DeviceArray:
    """One device's tile of an array. Its values never change; the step that it is donated to ends it."""

    # A step makes one for each output on each device: what can be found later is found later.
    __slots__ = ("__weakref__", "_data", "_end", "place")

    def __init__(self, data: NDArray, place: Place | None = None) -> None:
        """``data``: in ``place``'s memory, or (without one) memory that nobody else writes."""
        self._data: NDArray | None = data
        #: Where it lies, for others to read; None for memory of its own.
        self.place = place
        self._end: _End | None = None
        if place is not None:
            place.admit(self)

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
        """The values where they lie: to be read before the next step, never written. DonatedError once consumed."""
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
    def move_in(self, place: Place, memory: NDArray) -> None:
        """Lie in ``place`` from now on; ``memory`` holds a copy of the values already."""
        self._leave()
        self._data, self.place = memory, place
        place.admit(self)

    def move_out(self) -> None:
        if self._data is not None and self.place is not None:
            self._data, self.place = self._data.copy(), None

    def donate(self, taker: str) -> None:
        self._leave()
        if self._data is not None:
            self._end = _End(taker, self._data.shape, self._data.dtype)
        self._data = None

    def _leave(self) -> None:
        if self.place is not None and self.place.occupant is self:
            self.place.clear()
        self.place = None
