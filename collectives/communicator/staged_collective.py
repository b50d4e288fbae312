"""A collective into other memory than its results': they are copied when it is over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.communicator.interface import BoundCollective
from collectives.communicator.reduction import Array


class StagedCollective:
    """A BoundCollective. ``inner`` writes ``staging``; each run ends with copies of that to ``results``.

    Several members may do so with the same results in the same memory, if no run of ``inner`` ends before all have
    started it.
    """

    def __init__(
        self, inner: BoundCollective, staging: Sequence[Array], results: Sequence[Array]
    ) -> None:
        self._inner = inner
        self._copies = tuple(zip(results, staging, strict=True))
        self._running = False

    def start(self) -> None:
        self._inner.start()
        self._running = True

    def test(self) -> bool:
        if not self._inner.test():
            return False
        self._finish()
        return True

    def wait(self) -> None:
        self._inner.wait()
        self._finish()

    def _finish(self) -> None:
        if self._running:
            for result, value in self._copies:
                np.copyto(result, value)
        self._running = False
