"""End of a rank: it notifies its peers, reports the reason of a failure once per node, and limits every wait.

A failure on one rank aborts the job, with the rank's number in front of the message. Rank 0 reports an error that all
ranks agreed on, and all ranks end at the same time. MPI_Finalize and MPI_Abort may wait for other ranks; an alarm then
ends this process.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from collectives.communicator.liveness.status_table import RankState
from launch.ranks.agreement import AgreedError
from launch.ranks.messages import report_error
from launch.ranks.rank_environment import exit_code_of_rank, own_launcher
from launch.ranks.single_report import claim_report
from launch.ranks.unexpected import describe_system_failure
from spmd.errors import RunError, SpmdError
from spmd.limits import as_out_of_memory

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

_REPORT_SECONDS = 2.0
"""Seconds for which a failed rank waits for the report of another rank before it ends the job."""

_BARRIER_SECONDS = 20.0
"""Seconds in which all ranks that have agreed on an error must end. Then the job is aborted without the missing ranks.
"""

_END_SECONDS = 30
"""Seconds after which this process ends even if MPI_Finalize or MPI_Abort has not returned."""


def run_rank(world: MpiCommunicator, program: Callable[[MpiCommunicator], int]) -> int:
    """Run ``program`` on this rank. Returns its exit code.

    If the program raises an error, the job ends, and the function returns the error's code if it returns.
    """
    try:
        code = program(world)
    except BaseException as error:  # noqa: BLE001 - the other ranks would wait for this one after any error
        failure = describe_system_failure(error)
        return end_job(world, error if failure is None else RunError(failure))
    world.close()
    return code


def end_job(world: MpiCommunicator, error: BaseException) -> int:
    """Report ``error`` and end every process of the job.

    Rank 0 reports an AgreedError; of other errors the first rank of a node to fail reports its own. The function
    returns only after an AgreedError, on all ranks. The result is the exit code of this process.
    """
    if isinstance(error, AgreedError):
        code = error.agreed_code
        if _report_agreed(world, error):
            end_by_alarm()
            return code
    else:
        if isinstance(error, MemoryError):
            error = as_out_of_memory(error)
        code = error.exit_code if isinstance(error, SpmdError) else RunError.exit_code
        message = _describe(
            world, error
        )  # before the claim: the other ranks wait only shortly for the report
        if may_report(world):
            report_error(message)
    end_by_alarm()
    world.abort(exit_code_of_rank(code))
    return code


def _report_agreed(world: MpiCommunicator, error: AgreedError) -> bool:
    """Report the error on rank 0, while the other ranks wait. Returns whether all ranks have arrived in time."""
    if world.rank == 0:
        _claims_report(world)
        report_error(str(error))
    else:
        world.set_rank_state(RankState.ENDING)
    try:
        world.final_barrier(_BARRIER_SECONDS)
    except RunError as missing:
        if _claims_report(world):
            report_error(f"{error}\n{missing}")
        return False
    return True


def _describe(world: MpiCommunicator, error: BaseException) -> str:
    """Return the error's message, or its traceback if it is no SpmdError, after the number of this rank."""
    if isinstance(error, SpmdError):
        message = str(error)
    else:
        message = "".join(traceback.format_exception(error))
    if message.startswith("[rank "):
        return message
    return f"[rank {world.rank}/{world.size}] {message}"


def end_by_alarm() -> None:
    """End this process by SIGALRM after ``_END_SECONDS``.

    MPI_Finalize and MPI_Abort may wait for other ranks, and only a signal without a handler can end them.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_END_SECONDS)


def tell_peers_of_the_end(world: MpiCommunicator) -> None:
    """Make this process set its rank state when it exits or receives SIGTERM, so that peers do not wait for it.

    A script's own handler of SIGTERM stays. SIGKILL cannot be caught.
    """
    atexit.register(world.set_rank_state, RankState.LEFT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, partial(_on_terminate, world))


def _on_terminate(world: MpiCommunicator, number: int, _: FrameType | None) -> None:
    """Handle SIGTERM, by which the launcher ends the job, and end this process.

    If processes of ranks on this node have died, it reports these ranks, once per node.
    """
    where = "; ".join(f"rank {rank} {text}" for rank, text in world.lost_peers().items())
    if where and _claims_report(world):
        report_error(f"[rank {world.rank}/{world.size}] {where}")
    else:
        world.set_rank_state(RankState.ENDING)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def may_report(world: MpiCommunicator) -> bool:
    """Return whether this rank must report its failure: it is the first on its node.

    Any other rank waits for ``_REPORT_SECONDS`` first, so that the report is written before the job ends.
    """
    claims = _claims_report(world)
    if not claims:
        time.sleep(_REPORT_SECONDS)
    return claims


def _claims_report(world: MpiCommunicator) -> bool:
    """Claim the report of the failure for this rank and set its state. Returns False if a peer reports already."""
    claims = not world.has_failed_peer() and claim_report(own_launcher())
    world.set_rank_state(RankState.FAILED if claims else RankState.ENDING)
    return claims
