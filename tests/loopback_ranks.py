"""Run a program on N loopback ranks of a world of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from collectives.communicator.loopback import LoopbackCommunicator, LoopbackWorld
from collectives.communicator.shared_steps import StepEngine
from collectives.communicator.threads import run_on_threads

Result = TypeVar("Result")


def run_ranks(
    size: int,
    program: Callable[[LoopbackCommunicator], Result],
    timeout_seconds: float = 300.0,
    engine: StepEngine | None = None,
) -> list[Result]:
    return run_on_threads(LoopbackWorld(size, timeout_seconds, engine), program)
