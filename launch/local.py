"""Run one program on N devices inside this process: a thread per device, joined by loopback collectives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from collectives.communicator.interface import PeerFailedError
from collectives.communicator.loopback import LoopbackCommunicator, LoopbackWorld

Result = TypeVar("Result")


def run_on_threads(
    size: int,
    program: Callable[[LoopbackCommunicator], Result],
    timeout_seconds: float = 300.0,
) -> list[Result]:
    """``program(communicator)`` for every rank at once; what each returned, in rank order.

    A rank that raises ends all: the others' collectives raise promptly, and the first rank's error is raised
    here, unchanged.
    """
    devices = _Devices(size, program, timeout_seconds)
    threads = [
        threading.Thread(target=devices.run, args=(rank,), name=f"device {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return devices.outcome()


class _Devices(Generic[Result]):
    """What the threads share: the world and each rank's outcome, in the order in which ranks failed."""

    def __init__(
        self, size: int, program: Callable[[LoopbackCommunicator], Result], timeout_seconds: float
    ) -> None:
        self.world = LoopbackWorld(size, timeout_seconds)
        self.program = program
        self.results: dict[int, Result] = {}
        self.errors: list[BaseException] = []

    def run(self, rank: int) -> None:
        try:
            self.results[rank] = self.program(self.world.communicator(rank))
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            self.errors.append(error)
            self.world.abort(rank, error)
        else:
            self.world.leave(rank)

    def outcome(self) -> list[Result]:
        if self.errors:
            causes = [error for error in self.errors if not isinstance(error, PeerFailedError)]
            raise (causes or self.errors)[0]
        return [self.results[rank] for rank in range(self.world.size)]
