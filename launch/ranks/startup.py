"""Actions of a rank around MPI's start: it makes itself end with the launcher, hides files, and starts a watchdog."""

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

#: Settings for messages through shared memory if all ranks are on one node. Probing networks takes a second of each
#: start, and UCX a fifth of a second more. UCX also patches the C library's memory functions, while threads run, to
#: track memory that is registered with a network card.
ONE_NODE: Mapping[str, str] = {
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_pml": "ob1",
    "UCX_MEM_EVENTS": "n",
}

#: Open MPI maps a file of 16 MiB for each rank, for messages within a node.
_SEGMENT_BYTES = 17 << 20

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Open MPI would put them, with names of its own


@dataclass(frozen=True)
class Start:
    """Startup of a rank in progress. ``note``: a line for the user."""

    watchdog: Watchdog
    segments: Path | None
    note: str

    def done(self) -> None:
        """Remove the names of the segments, which all ranks of the node have mapped, and end the measures for MPI's
        start.
        """
        if self.segments is not None:
            shutil.rmtree(self.segments, ignore_errors=True)
        self.watchdog.started()
        catch_interrupts()


@functools.cache
def begin_start(rank: int, ranks: int) -> Start:
    """Begin a rank's start as early as possible, before MPI's, for which ``ONE_NODE`` is set; the user's settings
    stay."""
    tie_to_launcher()
    if is_single_node_job():
        os.environ.update({**ONE_NODE, **os.environ})
    first = (local_rank_of_environment() or 0) == 0
    segments = _segments_directory(ranks, os.environ)
    swept = [path for path in (segments, session_directory(os.environ)) if path]
    # Before there is anything to remove; whichever rank comes first makes it.
    watchdog = Watchdog(rank, swept, stays=first)
    note = ""
    if segments is not None:
        segments.mkdir(mode=0o700, exist_ok=True)
        os.environ[SEGMENTS_VARIABLE] = str(segments)
        if first and segments.parent != SHARED_MEMORY:
            note = f"{SHARED_MEMORY} has no room: Open MPI's segments lie in {segments.parent}"
    return Start(watchdog, segments, note)


def segments_directories(launcher: int) -> list[Path]:
    """Return the folders in which ranks of that launcher may have put segments."""
    folders = (SHARED_MEMORY, temporary_directory(os.environ))
    return [folder / f"spmd-{launcher}" for folder in folders]


def _segments_directory(ranks: int, environment: Mapping[str, str]) -> Path | None:
    """Return a directory of the job for Open MPI's segments, on a file system with enough space. It is removed as a
    whole.
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
