"""Agreement of a job's ranks before the first collective: all must be set up, for the same program.

The ranks exchange their errors, so that all of them end at the same time and none waits for a failed one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from collectives.communicator.interface import Communicator
from launch.ranks.unexpected import describe_unexpected
from spmd.errors import RunError, SpmdError
from spmd.limits import as_out_of_memory

Result = TypeVar("Result")

_MADE = b"made"
"""Prefix of the message with rank 0's result. A message that reports an error begins with a brace instead."""


class AgreedError(SpmdError):
    """Error that every rank of the job knows. Rank 0 alone prints it, and each rank exits with ``agreed_code``."""

    def __init__(self, message: str, agreed_code: int) -> None:
        super().__init__(message)
        self.agreed_code = agreed_code


def agree(world: Communicator, setup: Callable[[], tuple[Result, dict[str, str]]]) -> Result:
    """Run ``setup`` on every rank, and return its result if all calls succeeded with equal fingerprints.

    setup: function that returns a result and its fingerprint, the texts that must be equal on all ranks, by name
    ({"module": digest, "options": text}). It must not communicate.
    Raises AgreedError on every rank if ``setup`` raises on a rank, with all errors, or if fingerprints differ, with the
    ranks that differ.
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
    """Call ``make`` on rank 0 alone, and return its result on every rank.

    ``make`` must not communicate. doing: text for the messages of ranks that wait for rank 0, such as "compiles".
    Raises AgreedError on every rank if ``make`` raises an error.
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
    """Return the message and the exit code of ``error``, which the ranks exchange."""
    if isinstance(error, MemoryError):
        error = as_out_of_memory(error)
    if isinstance(error, SpmdError):
        return {"error": str(error), "exit_code": error.exit_code}
    return {"error": describe_unexpected(error), "exit_code": RunError.exit_code}


def agree_on_code(world: Communicator, code: int) -> int:
    """Return the largest of all ranks' exit codes on every rank. The call is also a barrier."""
    return max(int(other) for other in world.all_gather_bytes(str(code).encode()))


def describe_difference(fingerprints: Sequence[dict[str, str]]) -> str:
    """Describe, for each name, the ranks whose text differs from the most frequent one. Returns "" if all agree.

    fingerprints: texts by name, of ranks 0, 1, ...
    """
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
    """Return the errors' messages, each once, after the numbers of its ranks unless it is that of all ranks.

    errors: message of each rank that failed. size: number of ranks.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, message in errors.items():
        ranks_of.setdefault(message, []).append(rank)
    if list(ranks_of.values()) == [list(range(size))]:
        return next(iter(ranks_of))
    return "\n".join(
        f"[rank {','.join(map(str, ranks))}/{size}] {message}"
        for message, ranks in ranks_of.items()
    )
