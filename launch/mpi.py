"""One MPI rank's part in a job: agree with the others before the first collective, and end all when one fails.

Nobody hangs: setup errors are exchanged and every rank leaves together; a failure after that aborts the job with the
rank's number in front of its message.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from collectives.communicator.interface import Communicator
from collectives.communicator.status import Life
from launch.one_report import claim_report
from launch.rank_environment import NODE_ID_VARIABLE, own_launcher, world_of_environment
from launch.starting import begin_start
from runtime.shared_memory_engine import native_step_engine
from spmd.errors import RunError, SpmdError

if TYPE_CHECKING:
    from collectives.communicator.mpi import MpiCommunicator

Result = TypeVar("Result")

_REPORT_SECONDS = 2.0
"""For another rank's message to come out before this one ends the job."""

_MADE = b"made"
"""In front of what rank 0 has made; a report of its error begins with a brace."""


class AgreedError(SpmdError):
    """Errors that every rank knows; rank 0 alone prints them, and each exits with ``agreed_code``."""

    def __init__(self, message: str, agreed_code: int) -> None:
        super().__init__(message)
        self.agreed_code = agreed_code


def report_error(message: str) -> None:
    """The one form in which errors reach the user."""
    sys.stderr.write(f"spmd: error: {message}\n")
    sys.stderr.flush()


def report_note(message: str) -> None:
    """What a user should know though nothing failed."""
    sys.stderr.write(f"spmd: note: {message}\n")
    sys.stderr.flush()


def open_world(started_ranks: int, timeout_seconds: float) -> MpiCommunicator:
    """The communicator of all ``started_ranks`` ranks that the launcher says it started.

    Ranks of one node share memory; the environment variable SPMD_NODE_ID tells nodes apart where the host's name does
    not (two namespaces of one host), one value for each.

    From here on this process ends with the launcher, even if that is killed, and tells its peers when it ends.

    RunError where mpi4py or its MPI library is missing, or is another MPI than the launcher's.
    """
    rank = (world_of_environment() or (0, 1))[0]
    start = begin_start(rank, started_ranks)
    start.attendant.limit(timeout_seconds)
    if start.note:
        report_note(start.note)
    try:
        from collectives.communicator.mpi import MpiCommunicator, end_all_ranks
    except (ImportError, RuntimeError) as error:
        raise RunError(
            f"started by an MPI launcher, but mpi4py cannot be used: {error}\n"
            'pip install "spmd-executor[mpi]" brings mpi4py and an MPI library'
        ) from error
    try:
        world = MpiCommunicator(
            timeout_seconds=timeout_seconds,
            engine=native_step_engine(),
            node_id=os.environ.get(NODE_ID_VARIABLE),
            notify=report_note,
        )
    except Exception as error:
        # To leave now would be to wait for the others in MPI's end, and they for this rank in MPI's start.
        report_error(f"[rank {rank}/{started_ranks}] {error}")
        end_all_ranks(RunError.exit_code)
        raise
    if world.size != started_ranks:
        raise RunError(
            f"the launcher started {started_ranks} ranks, but this rank's MPI library sees {world.size}: "
            "mpirun and the library that mpi4py loads are different MPIs"
        )
    start.done()
    _tell_peers_of_the_end(world)
    return world


def _tell_peers_of_the_end(world: MpiCommunicator) -> None:
    """However this process ends, short of SIGKILL. A script's own handler of SIGTERM stays."""
    atexit.register(world.set_life, Life.LEFT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, partial(_end_when_told, world))


def _end_when_told(world: MpiCommunicator, number: int, _: FrameType | None) -> None:
    """The launcher ends the job: say whose death is the reason, if one of the node's ranks has died."""
    lost = world.lost_peers()
    if lost and _claims_report(world):
        where = "; ".join(f"rank {rank} {text}" for rank, text in lost.items())
        report_error(f"[rank {world.rank}/{world.size}] {where}")
    else:
        world.set_life(Life.ENDING)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def may_report(world: MpiCommunicator) -> bool:
    """Whether this rank, of all those that fail now, is the one to say why. The others give it the time to."""
    claims = _claims_report(world)
    if not claims:
        time.sleep(_REPORT_SECONDS)
    return claims


def _claims_report(world: MpiCommunicator) -> bool:
    claims = not world.has_failed_peer() and claim_report(own_launcher())
    world.set_life(Life.FAILED if claims else Life.ENDING)
    return claims


def agree(world: Communicator, setup: Callable[[], tuple[Result, dict[str, str]]]) -> Result:
    """Run ``setup`` on every rank; its result where all succeeded with equal fingerprints.

    ``setup`` returns a value and what must be the same everywhere, by name ({"module": digest, "options": text}).
    It must not communicate. Raises AgreedError, on every rank alike, with the ranks' errors or with the ranks that
    differ.
    """
    result: Result | None = None
    report: dict[str, object] = {}
    try:
        result, fingerprint = setup()
        report = {"fingerprint": fingerprint}
    except Exception as error:  # noqa: BLE001 - a defect on one rank must not leave the others waiting
        report = _error_report(error)
    reports = [json.loads(data) for data in world.all_gather_bytes(json.dumps(report).encode())]
    errors = {rank: entry for rank, entry in enumerate(reports) if "error" in entry}
    if errors:
        exit_code = max(int(entry["exit_code"]) for entry in errors.values())
        raise AgreedError(
            _describe_errors({r: str(e["error"]) for r, e in errors.items()}, world.size), exit_code
        )
    difference = describe_difference([entry["fingerprint"] for entry in reports])
    if difference:
        raise AgreedError(difference, SpmdError.exit_code)
    assert result is not None
    return result


def from_first(world: Communicator, make: Callable[[], bytes], doing: str) -> bytes:
    """What ``make`` gives on rank 0, on every rank; its error as AgreedError, on every rank alike.

    ``make`` is called on rank 0 alone and must not communicate. ``doing``: what it does, for a rank that waits in vain.
    """
    message = b""
    if world.rank == 0:
        world.note(doing)
        try:
            message = _MADE + make()
        except Exception as error:  # noqa: BLE001 - the other ranks wait for this one
            message = json.dumps(_error_report(error)).encode()
    message = world.broadcast_bytes(message)
    if message.startswith(_MADE):
        return message[len(_MADE) :]
    report = json.loads(message)
    raise AgreedError(str(report["error"]), int(report["exit_code"]))


def _error_report(error: Exception) -> dict[str, object]:
    if isinstance(error, SpmdError):
        return {"error": str(error), "exit_code": error.exit_code}
    return {
        "error": f"{type(error).__name__}: {error}\n{traceback.format_exc()}",
        "exit_code": RunError.exit_code,
    }


def agree_on_code(world: Communicator, code: int) -> int:
    """The largest of all ranks' exit codes, on every rank; also keeps them together while one prints."""
    return max(int(other) for other in world.all_gather_bytes(str(code).encode()))


def describe_difference(fingerprints: Sequence[dict[str, str]]) -> str:
    """Which ranks differ from most of the ranks, and in what; empty where all agree."""
    lines = []
    for key in dict.fromkeys(key for fingerprint in fingerprints for key in fingerprint):
        values = [fingerprint.get(key, "nothing") for fingerprint in fingerprints]
        common = Counter(values).most_common(1)[0][0]
        odd = [rank for rank, value in enumerate(values) if value != common]
        if odd:
            others = ", ".join(f"rank {rank}: {values[rank]}" for rank in odd[:8])
            lines.append(f"ranks do not have the same {key}: {others}; the other ranks: {common}")
    return "\n".join(lines)


def _describe_errors(errors: dict[int, str], size: int) -> str:
    """Equal messages once, each with its ranks in front."""
    ranks_of: dict[str, list[int]] = {}
    for rank, message in errors.items():
        ranks_of.setdefault(message, []).append(rank)
    if list(ranks_of.values()) == [list(range(size))]:
        return next(iter(ranks_of))
    return "\n".join(
        f"[rank {','.join(map(str, ranks))}/{size}] {message}"
        for message, ranks in ranks_of.items()
    )


def run_rank(world: MpiCommunicator, program: Callable[[MpiCommunicator], int]) -> int:
    """``program``'s exit code. Errors that all ranks agreed on end every rank; any other aborts the job."""
    try:
        code = program(world)
    except AgreedError as error:
        if world.rank == 0:
            report_error(str(error))
        world.barrier()
        return error.agreed_code
    except BaseException as error:
        abort_job(world, error)
        raise
    world.close()
    return code


def abort_job(world: MpiCommunicator, error: BaseException) -> None:
    """Say which rank failed and end the job."""
    prefix = f"[rank {world.rank}/{world.size}]"
    message = (
        str(error) if isinstance(error, SpmdError) else "".join(traceback.format_exception(error))
    )
    if not message.startswith("[rank "):
        message = f"{prefix} {message}"
    if may_report(world):
        report_error(message)
    world.abort(error.exit_code if isinstance(error, SpmdError) else RunError.exit_code)
