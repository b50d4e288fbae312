"""Run a program on every rank of a loopback world: a thread per rank."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.interface import PeerFailedError
from collectives.communicator.loopback.communicator import LoopbackCommunicator, LoopbackWorld

Result = TypeVar("Result")


def run_ranks(
    size: int,
    program: Callable[[LoopbackCommunicator], Result],
    timeout_seconds: float = 300.0,
    engine: CollectiveEngine | None = None,
) -> list[Result]:
    """``run_on_threads`` in a world of its own."""
    return run_on_threads(LoopbackWorld(size, timeout_seconds, engine), program)


def run_on_threads(
    world: LoopbackWorld, program: Callable[[LoopbackCommunicator], Result]
) -> list[Result]:
    """``program(communicator)`` for every rank at once; what each returned, in rank order.

    A rank that raises ends all: the others' collectives raise promptly, and the first rank's error is raised
    here, unchanged. The world can be used again after a run without errors.
    """
    world.rejoin()
    ranks = _Ranks(world, program)
    threads = [
        threading.Thread(target=ranks.run, args=(rank,), name=f"device {rank}", daemon=True)
        for rank in range(world.size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ranks.outcome()


class _Ranks(Generic[Result]):
    """The state that the threads share: the world, and each rank's outcome in the order in which ranks failed."""

    def __init__(
        self, world: LoopbackWorld, program: Callable[[LoopbackCommunicator], Result]
    ) -> None:
        self.world = world
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
