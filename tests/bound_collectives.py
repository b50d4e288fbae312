"""Bind a collective and run it once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.communicator.interface import Communicator
from collectives.communicator.kinds import Collective


def run_collective(
    comm: Communicator,
    collective: Collective,
    name: str,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
) -> None:
    bound = comm.bind(collective, name, operands, results)
    comm.connect()
    bound.start()
    bound.wait()
