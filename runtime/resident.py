"""Arrays that stay on a device between steps.

A loaded program has places: the memory of its entry parameters and results. An array lies in a place as long as nobody
else needs it, and moves out into memory of its own when a step or another array does. So state that a step takes in and
gives back in the same place is never copied, and an output that the caller has let go costs nothing either.

    state in place 0 ── step, donated ──► consumed;  the step's output lies in place 0
    loss  in place 9 ── the next step writes place 9 ──► moved out, if the caller still holds it
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from spmd.errors import RunError
from spmd.literal import NDArray


class DonatedError(RunError):
    """An array was used after a step had consumed it."""


class Place:
    """Memory of an entry parameter or result (or of both), and the one array that lies there, if anyone holds it."""

    __slots__ = ("_occupant",)

    def __init__(self) -> None:
        self._occupant: weakref.ref[DeviceArray] | None = None

    @property
    def occupant(self) -> DeviceArray | None:
        return self._occupant() if self._occupant is not None else None

    def vacate(self) -> None:
        """Let the memory be written: an array that lies here moves out."""
        occupant = self.occupant
        if occupant is not None:
            occupant.move_out()
        self.clear()

    def clear(self) -> None:
        """Nobody lies here any more."""
        self._occupant = None

    def admit(self, array: DeviceArray) -> None:
        self._occupant = weakref.ref(array)


class DeviceArray:
    """One device's tile of an array. Its values never change; the step that it is donated to ends it."""

    __slots__ = ("__weakref__", "_data", "_place", "_taker", "dtype", "shape")

    def __init__(self, data: NDArray, place: Place | None = None) -> None:
        """``data``: in ``place``'s memory, or (without one) memory that nobody else writes."""
        self.shape = data.shape
        self.dtype = data.dtype
        self._data: NDArray | None = data
        self._place = place
        self._taker = ""
        if place is not None:
            place.admit(self)

    @property
    def place(self) -> Place | None:
        """Where it lies; None for memory of its own."""
        return self._place

    @property
    def is_donated(self) -> bool:
        return self._data is None

    def view(self) -> NDArray:
        """The values where they lie: to be read before the next step, never written. DonatedError once consumed."""
        if self._data is None:
            raise DonatedError(
                f"an array {self.dtype}{list(self.shape)} was donated to a step of {self._taker}, "
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
        self._data, self._place = memory, place
        place.admit(self)

    def move_out(self) -> None:
        if self._data is not None and self._place is not None:
            self._data, self._place = self._data.copy(), None

    def donate(self, taker: str) -> None:
        self._leave()
        self._data, self._taker = None, taker

    def _leave(self) -> None:
        if self._place is not None and self._place.occupant is self:
            self._place.clear()
        self._place = None
