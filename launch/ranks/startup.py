"""Start of a rank around MPI_Init: the rank ends with its launcher, starts a watchdog, and places Open MPI's files."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from launch.ranks.rank_environment import (
    catch_interrupts,
    is_single_node_job,
    local_rank_of_environment,
    own_launcher,
    session_directory,
    temporary_directory,
    tie_to_launcher,
)
from launch.ranks.watchdog import Watchdog
from spmd.lazy_dataclass import dataclass

SEGMENTS_VARIABLE = "OMPI_MCA_btl_sm_backing_directory"

#: Settings of Open MPI and UCX for messages through shared memory, used if all ranks are on one node. Otherwise each
#: start takes a second more to probe networks, and a fifth of a second more for UCX. UCX also patches the C library's
#: memory functions while threads run, to track memory that is registered with a network card.
ONE_NODE: Mapping[str, str] = {
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_pml": "ob1",
    "UCX_MEM_EVENTS": "n",
}

#: Space for the file of 16 MiB that Open MPI maps for each rank, for messages within a node.
_SEGMENT_BYTES = 17 << 20

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Open MPI itself puts segments there


@dataclass(frozen=True)
class Start:
    """Start of a rank that is in progress. segments: folder of Open MPI's files. note: a line for the user, or ""."""

    watchdog: Watchdog
    segments: Path | None
    note: str

    def done(self) -> None:
        """Finish the start, after MPI_Init: remove the files of segments, which all ranks of the node have mapped.

        It also notifies the watchdog, and makes SIGINT raise KeyboardInterrupt again.
        """
        if self.segments is not None:
            shutil.rmtree(self.segments, ignore_errors=True)
        self.watchdog.started()
        catch_interrupts()


@functools.cache
def begin_start(rank: int, ranks: int) -> Start:
    """Begin the start of ``rank`` among ``ranks``, as early as possible and before MPI_Init.

    It ties the process to its launcher, sets the variables of ``ONE_NODE`` that the user has not set, if they apply,
    and starts the watchdog.
    """
    tie_to_launcher()
    if is_single_node_job():
        os.environ.update({**ONE_NODE, **os.environ})
    first = (local_rank_of_environment() or 0) == 0
    segments = _segments_directory(ranks, os.environ)
    swept = [path for path in (segments, session_directory(os.environ)) if path]
    # The watchdog starts before the folder exists, so that it removes the folder in any case.
    watchdog = Watchdog(rank, swept, stays=first)
    note = ""
    if segments is not None:
        segments.mkdir(mode=0o700, exist_ok=True)
        os.environ[SEGMENTS_VARIABLE] = str(segments)
        if first and segments.parent != SHARED_MEMORY:
            note = f"{SHARED_MEMORY} has no room: Open MPI's segments are in {segments.parent}"
    return Start(watchdog, segments, note)


def segments_directories(launcher: int) -> list[Path]:
    """Return the folders in which ranks of the launcher with process number ``launcher`` may put segments."""
    folders = (SHARED_MEMORY, temporary_directory(os.environ))
    return [folder / f"spmd-{launcher}" for folder in folders]


def _segments_directory(ranks: int, environment: Mapping[str, str]) -> Path | None:
    """Return a folder of the job for Open MPI's segments, on a file system with enough space.

    Returns None if Open MPI did not start the ranks, if the user has named a folder, or if no file system has space.
    """
    if "OMPI_COMM_WORLD_SIZE" not in environment or SEGMENTS_VARIABLE in environment:
        return None
    wanted = ranks * _SEGMENT_BYTES
    for directory in segments_directories(own_launcher().pid):
        try:
            if shutil.disk_usage(directory.parent).free >= wanted and os.access(
                directory.parent, os.W_OK
            ):
                return directory
        except OSError:
            continue
    return None
